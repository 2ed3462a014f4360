"""The files beside an ONNX file that hold its weights, which frameworks read with it.

They must be covered by a digest, too: of ``weights``, or of the archive that they are in.

They are found by a walk over the file by the field numbers of onnx.proto3
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3), which passes over weights in the file.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import filelock
from mlms_predictors._run.protobuf import fields
from mlms_predictors._run.zip_files import check_name

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.core.waits import LOCK_MODE
from pytest_mlms.provide.artifacts.digest import digest_of

_READERS = {"onnxruntime": (".ort",), "opencv": (".prototxt",), "openvino": (), "tensorrt": ()}
"""Frameworks that read ONNX files; those that do so whatever a file is called, but for these."""

_PARTS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
"""The messages inside each message of onnx.proto3, by their field numbers."""

_ADDRESS = "*/_ORT_MEM_ADDR_/*"
"""The location that ONNX Runtime takes for an address in memory."""
_NODE_TYPE = 4
_ENTRY_KEY = 1
_ENTRY_VALUE = 2


def with_external_data(
    framework: str, artifacts: Mapping[str, Artifact], paths: Mapping[str, Path], cache: Path
) -> Mapping[str, Path]:
    """Return the files of a model by role, so that the framework finds what its ONNX file names.

    ``weights`` has a role of its own in a manifest, and its file any name and place. If it isn't
    where the ONNX file says, the two are put into a folder in the cache. Raises ArtifactError.
    """
    graph = paths["graph"]
    names = check_external_data(framework, artifacts, graph)
    if not names:
        return paths
    if _is_in_archive(artifacts["graph"]):
        return {**paths, **_members(artifacts["graph"], graph, names)}
    weights = paths["weights"]
    is_in_place = (
        graph.resolve().parent / names[0] == weights.resolve() and graph == graph.resolve()
    )
    if is_in_place:
        return paths
    return _side_by_side(graph, weights, names[0], cache)


def check_external_data(
    framework: str, artifacts: Mapping[str, Artifact], graph: Path
) -> tuple[str, ...]:
    """Return the files that a model's ONNX file at ``graph`` names, none for another model.

    Raises ArtifactError where a digest doesn't cover them.
    """
    if graph.is_dir() or not is_onnx(framework, graph):
        return ()
    place = artifacts["graph"].place
    try:
        names = external_data(graph)
    except ValueError as error:
        if framework not in _READERS:
            return ()  # a predictor of one's own may read what it likes
        problem = f"{place}: {graph} is not an ONNX model: {error}"
        raise ArtifactError(f"{problem}; export it again") from error
    _check_inside(names, graph, place)
    if not _is_in_archive(artifacts["graph"]):
        _check_covered(names, artifacts, graph)
    return names


def _check_inside(names: tuple[str, ...], graph: Path, place: Place) -> None:
    for name in names:
        try:
            check_name(name)
            if "*" in name:
                raise ValueError(_ADDRESS)
        except ValueError as error:
            problem = f"{place}: {graph.name} has weights in {name!r}, which is no place beside it"
            raise ArtifactError(
                f"{problem}; export it again, with a name without folders"
            ) from error


def _check_covered(names: tuple[str, ...], artifacts: Mapping[str, Artifact], graph: Path) -> None:
    """Check that what a file outside of an archive names is the file of ``weights``."""
    covered = 1 if "weights" in artifacts else 0
    if len(names) <= covered:
        return
    place = artifacts["graph"].place
    problem = f"{place}: {graph.name} has weights in {', '.join(names)}, which no sha256 covers"
    advice = f"put all of them into an archive, and write 'graph: MODEL.zip#{graph.name}'"
    if len(names) == 1:
        advice = (
            f"write 'weights: {names[0]}' and its sha256 as {{graph: …, weights: …}}, or {advice}"
        )
    raise ArtifactError(f"{problem}; {advice}")


def is_onnx(framework: str, graph: Path) -> bool:
    """Return whether a framework reads a file as ONNX."""
    others = _READERS.get(framework, ())
    return graph.suffix == ".onnx" or (len(others) > 0 and graph.suffix not in others)


def _is_in_archive(artifact: Artifact) -> bool:
    return artifact.member is not None


def _members(artifact: Artifact, graph: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """Return the files of an archive that its ONNX file names, by roles of their own."""
    found = {}
    for number, name in enumerate(names):
        path = graph.parent / name
        if not path.is_file():
            problem = f"{artifact.place}: {artifact.member} has weights in {name}"
            raise ArtifactError(f"{problem}, which the archive lacks; put it beside {graph.name}")
        found[f"data-{number}"] = path
    return found


def _side_by_side(graph: Path, weights: Path, name: str, cache: Path) -> dict[str, Path]:
    """Put copies of two files into a folder of the cache, where one names the other."""
    digests = {graph.name: digest_of(graph), name: digest_of(weights)}
    folder = cache / "side-by-side" / "-".join(digest[:32] for digest in digests.values())
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.with_suffix(".lock"), mode=LOCK_MODE):
        if not all(_has(folder / file, digest) for file, digest in digests.items()):
            _copy({graph.name: graph, name: weights}, folder)
    return {"graph": folder / graph.name, "weights": folder / name}


def _copy(files: Mapping[str, Path], folder: Path) -> None:
    """Make a folder of copies of files, by their names in it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = Path(temporary, "made")
        for name, path in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, made / name)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def _has(path: Path, digest: str) -> bool:
    return path.is_file() and not path.is_symlink() and digest_of(path) == digest


def external_data(path: Path) -> tuple[str, ...]:
    """Return the files that an ONNX file names for its weights, relative to its folder.

    Raises ValueError for a file that is none, and for one that has a model of another kind inside.
    """
    status = path.stat()
    return _external_data(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _external_data(path: Path, size: int, modified: int) -> tuple[str, ...]:
    with path.open("rb") as file:
        if not size:
            raise ValueError("it is empty")
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return tuple(sorted(set(_locations(view))))


def _locations(model: memoryview) -> Iterator[str]:
    left: list[tuple[str, Any]] = [("model", model)]
    while left:
        kind, message = left.pop()
        if kind == "entry":
            yield from _location(message)
            continue
        for field in fields(message):
            inner = _PARTS[kind].get(field.number)
            if inner and isinstance(field.value, int):
                raise ValueError(f"its {inner} is a number")
            if inner:
                left.append((inner, field.value))
            elif (kind, field.number, field.value) == ("node", _NODE_TYPE, b"EPContext"):
                raise ValueError("it has a node EPContext, whose compiled model is in no ONNX file")


def _location(entry: memoryview) -> Iterator[str]:
    """Yield the value of an entry of a tensor's external data, if its key is location."""
    found = {_ENTRY_KEY: b"", _ENTRY_VALUE: b""}
    for field in fields(entry):
        if not isinstance(field.value, int):
            found[field.number] = bytes(field.value)
    if found[_ENTRY_KEY] == b"location":
        yield found[_ENTRY_VALUE].decode()
