"""Secrets that no bundle may have: texts and names in an ONNX model, traces of this machine.

The structure of the model stays. Files are searched for the user's home, the host, and the folders
in use."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro.bundle import Bundle
from pytest_mlms.measure.structure.onnx_operations import subgraphs
from pytest_mlms.provide.artifacts.external_data import external_data, is_onnx

if TYPE_CHECKING:
    from numpy.typing import NDArray


_TEXTS = ("doc_string", "metadata_props", "denotation")
"""The fields of onnx.proto3 that describe, in whatever message they are."""

_OF_MODEL = ("producer_name", "producer_version", "domain", "model_version", "training_info")


def graphs_of(graph: Any) -> Iterator[Any]:
    """Yield a graph, and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs_of(inner)


def strip_texts(model: Any) -> None:
    """Remove descriptions and the producer from a model, everywhere in it."""
    for name in _OF_MODEL:
        model.ClearField(name)
    _strip(model)


def _strip(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name in _TEXTS:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                _strip(inner)


def rename(model: Any) -> Mapping[str, str]:
    """Call the nodes n0, n1, …, the tensors t0, … and the free axes d0, …; return tensors' names.

    A name stays the name of one tensor in all graphs. The model has no functions of its own.
    """
    tensors: dict[str, str] = {"": ""}
    axes: dict[str, str] = {"": ""}
    number = 0
    for graph in graphs_of(model.graph):
        graph.name = "graph"
        for value in (*graph.input, *graph.output, *graph.value_info):
            value.name = _renamed(value.name, tensors, "t")
            _rename_axes(value.type, axes)
        for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
            tensor.name = _renamed(tensor.name, tensors, "t")
        for annotation in graph.quantization_annotation:
            annotation.tensor_name = _renamed(annotation.tensor_name, tensors, "t")
            for entry in annotation.quant_parameter_tensor_names:
                entry.value = _renamed(entry.value, tensors, "t")
        for node in graph.node:
            node.name = f"n{number}"
            number += 1
            for names in (node.input, node.output):
                names[:] = [_renamed(name, tensors, "t") for name in names]
            _clear_names(node)
    return tensors


def _clear_names(node: Any) -> None:
    """Remove the names of tensors that are attributes, which nothing refers to."""
    for attribute in node.attribute:
        for tensor in (attribute.t, attribute.sparse_tensor.values, *attribute.tensors):
            if tensor.name:
                tensor.ClearField("name")


def _renamed(name: str, known: dict[str, str], letter: str) -> str:
    return known.setdefault(name, f"{letter}{len(known) - 1}")


def _rename_axes(kind: Any, axes: dict[str, str]) -> None:
    """Rename the free axes of a type, also inside of sequences and maps."""
    for field, value in kind.ListFields():
        if field.name == "shape":
            for axis in value.dim:
                if axis.dim_param:
                    axis.dim_param = _renamed(axis.dim_param, axes, "d")
        elif field.message_type is not None:
            _rename_axes(value, axes)


Content = Path | bytes

_SHORTEST = 4  # characters of a host's name that is looked for; shorter ones are everywhere
_GRAPH = "graph.onnx"
_NOTE = "Descriptions were removed from the ONNX file, as they named places of a machine."
_COMMON = ("localhost", "ubuntu", "debian", "linux", "runner", "default", "worker", "build", "main")
_LISTED = ("model/", "predictors/", "repro.json", "README.txt")
"""The files of a bundle that are not ours; texts of arrays are read, wheels are packages."""


def places_of_this_machine() -> tuple[str, ...]:
    """Return what tells whose machine this is: folders of the user, and the host's name."""
    found = [tempfile.gettempdir() + "/mlms-", str(Path.cwd())]
    with contextlib.suppress(RuntimeError):
        found.append(f"{Path.home()}/")
    cache = os.environ.get("MLMS_CACHE")
    if cache:
        found.append(cache)
    host = socket.gethostname()
    if len(host) >= _SHORTEST and host.lower() not in _COMMON:
        found.append(host)
    return tuple(place for place in dict.fromkeys(found) if place.strip("/"))


def without_places(bundle: Bundle, folder: Path) -> Bundle:
    """Return a bundle whose ONNX graph has no descriptions, if they name this machine.

    Exporters write the source lines of each node there. The new graph is written to ``folder``.
    """
    graph = bundle.files.get("graph")
    if graph is None or graph.is_dir() or not is_onnx(bundle.framework, graph):
        return bundle
    with _open(graph) as content:
        if _pattern().search(content) is None:
            return bundle
    import onnx

    model = onnx.load(str(graph), load_external_data=False)
    strip_texts(model)
    onnx.save(model, str(folder / _GRAPH))
    files = {**bundle.files, "graph": folder / _GRAPH}
    for name in external_data(graph):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to((graph.parent / name).resolve())
    for role, path in bundle.files.items():
        if role != "graph" and (folder / path.name).is_symlink():
            files[role] = folder / path.name
    return replace(bundle, files=files, notes=(*bundle.notes, _NOTE))


def _pattern() -> re.Pattern[bytes]:
    places = [place.encode() for place in places_of_this_machine()]
    host = re.escape(socket.gethostname().encode())
    whole = [
        re.escape(place) + (rb"(?![\w-])" if re.escape(place) == host else b"") for place in places
    ]
    return re.compile(rb"(?<![\w.-])(" + b"|".join(whole) + rb")")


def check_private(members: Mapping[str, Content], inputs: Mapping[str, NDArray[Any]]) -> None:
    """Raise MlmsError where a bundle names this machine; it says in which file or input, and what.

    ``inputs`` are its arrays, of which those of texts are read.
    """
    pattern = _pattern()
    parts = {name: content for name, content in members.items() if name.startswith(_LISTED)}
    for name, array in inputs.items():
        if array.dtype.kind == "U":
            parts[f"input {name!r}"] = "\n".join(array.reshape(-1).tolist()).encode()
    for name in sorted(parts):
        with _open(parts[name]) as content:
            found = pattern.search(content)
            if found:
                place = found[1].decode(errors="replace")
                problem = f"{name} names this machine or its user ({place})"
                raise MlmsError(
                    f"{problem}; remove that, use --without-model, or --force to keep it"
                )


@contextlib.contextmanager
def _open(content: Content) -> Iterator[bytes | mmap.mmap]:
    if isinstance(content, bytes):
        yield content
        return
    if not content.stat().st_size:
        yield b""
        return
    with content.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        yield view
