"""The files of a model that a user names, and the framework that they are for."""

from __future__ import annotations

import itertools
import mmap
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import close_words, file_stem
from pytest_mlms.manifest.types import instead

_FRAMEWORKS = {
    ".dnn": "cntk",
    ".engine": "tensorrt",
    ".jax": "jax",
    ".jit": "pytorch",
    ".keras": "tensorflow",
    ".model": "cntk",
    ".onnx": "onnxruntime",
    ".ort": "onnxruntime",
    ".pb": "tensorflow",
    ".plan": "tensorrt",
    ".prototxt": "caffe",
    ".pt": "pytorch",
    ".pt2": "pytorch",
    ".pth": "pytorch",
    ".py": "pytorch",
    ".tflite": "tflite",
    ".torchscript": "pytorch",
    ".trt": "tensorrt",
    ".ts": "pytorch",
    ".xml": "openvino",
}
"""Suffix of a graph -> the framework that runs it unless the user names another."""

_ALSO_OPEN = {".onnx": ("opencv", "openvino", "tensorrt"), ".prototxt": ("opencv",)}
"""Suffix of a graph -> the other frameworks that run it."""

_WEIGHTS_ONLY = (".bin", ".ckpt", ".gguf", ".h5", ".joblib", ".npz", ".pkl", ".safetensors")
_HDF5_START = b"\x89HDF\r\n\x1a\n"
_KERAS_NETWORK = b"model_config"
"""The name of the attribute that has the network."""
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_SYMBOL = "-symbol.json"
SAVED_MODEL = "saved_model.pb"
_PREFIX = re.compile(r"([a-z][a-z0-9_]*)=(.+)", re.DOTALL)
_SHOWN = 5  # names in an error


@dataclass(frozen=True)
class ModelFiles:
    """A model: its framework, its graph, and its weights where they are a file of their own.

    A ``graph`` that is a folder is to be packed into an archive. Several models of one framework
    are variants.
    """

    framework: str
    graph: Path
    weights: Path | None = None
    variant: str = ""

    @property
    def is_archive(self) -> bool:
        """True if the graph is in an archive."""
        return self.graph.name.endswith(_ARCHIVES)


def recognise_models(named: Sequence[str], frameworks: Collection[str]) -> list[ModelFiles]:
    """Return the models that arguments name, each as PATH or FRAMEWORK=PATH.

    Weights that are named are put to the graph that they belong to. Several models of a framework
    are variants, called by what their names differ in. Raises MlmsError, which says what to name
    instead.
    """
    # A graph and its weights may both be named.
    models = list(dict.fromkeys(_recognise(argument, frameworks) for argument in named))
    by_framework: dict[str, list[ModelFiles]] = {}
    for model in models:
        by_framework.setdefault(model.framework, []).append(model)
    variants: dict[ModelFiles, str] = {}
    for group in by_framework.values():
        if len(group) > 1:
            names = _distinguished([file_stem(str(model.graph)) for model in group])
            variants.update(zip(group, names, strict=True))
    return [replace(model, variant=variants.get(model, "")) for model in models]


def openers_of(model: ModelFiles) -> list[str]:
    """Return the frameworks whose predictors of ours open a model's file, as its name tells.

    There are none where it doesn't tell the model's own framework.
    """
    try:
        first = "tensorflow" if model.graph.is_dir() else _framework_of(model.graph)
    except MlmsError:
        return []
    names = [first, *_ALSO_OPEN.get(model.graph.suffix, ())]
    return names if model.framework in names else []


def _distinguished(stems: Sequence[str]) -> list[str]:
    """Return what the names of files differ in, whole words; the name where that is nothing.

    Raises MlmsError where two are the same.
    """
    words = [re.findall(r"[A-Za-z0-9]+", stem) for stem in stems]
    columns = zip(*words, strict=False)
    common = len([*itertools.takewhile(lambda column: len({*column}) == 1, columns)])
    names = ["-".join(each[common:] or each) for each in words]
    if len({*names, ""}) <= len(names):
        raise MlmsError(f"the models are all called {stems[0]}; rename the files, as variants are")
    return names


def _recognise(argument: str, frameworks: Collection[str]) -> ModelFiles:
    chosen, path = _split(argument, frameworks)
    if not path.exists():
        raise MlmsError(f"there is no {path}; {_advice_on_missing(path)}")
    if path.is_dir():
        return _of_folder(path, chosen)
    if path.name == SAVED_MODEL:
        return ModelFiles(chosen or "tensorflow", path.parent)
    graph = _graph_of(path)
    framework = chosen or _framework_of(graph)
    return ModelFiles(framework, graph, _weights_of(graph, framework))


def _split(argument: str, frameworks: Collection[str]) -> tuple[str, Path]:
    """Return the framework that an argument names, "" for none, and its path."""
    found = _PREFIX.fullmatch(argument)
    if found is None or os.path.exists(argument):
        if "://" in argument:
            raise MlmsError(f"{argument} is an address; download it, and name the file")
        return "", Path(os.path.expanduser(argument))
    name, path = found.groups()
    if name not in frameworks:
        raise MlmsError(f"no predictor for {name!r}; {instead(name, sorted(frameworks))}")
    return name, Path(os.path.expanduser(path))


def _advice_on_missing(path: Path) -> str:
    folder = path.parent
    names = [found.name for found in folder.iterdir()] if folder.is_dir() else []
    close = close_words(path.name, names)
    if close:
        return f"did you mean {folder / close[0]}?"
    models = _models_in(folder) if folder.is_dir() else []
    if models:
        return f"the models there are {_listed(models)}"
    return "name the file of a model"


def _of_folder(folder: Path, chosen: str) -> ModelFiles:
    if (folder / SAVED_MODEL).is_file():
        return ModelFiles(chosen or "tensorflow", folder)
    models = _models_in(folder)
    if models:
        advice = f"name one of {_listed(models)}"
    else:
        advice = f"name a model's file, or a folder with {SAVED_MODEL}"
    raise MlmsError(f"{folder} is a folder; {advice}")


def _models_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if _is_graph(path) and path.suffix != ".py"]


def _is_graph(path: Path) -> bool:
    return path.suffix in _FRAMEWORKS or path.name.endswith(_SYMBOL)


def _listed(paths: Iterable[Path]) -> str:
    names = [str(path) for path in paths]
    more = [] if len(names) <= _SHOWN else ["…"]
    return ", ".join([*names[:_SHOWN], *more])


def _graph_of(path: Path) -> Path:
    """Return the graph that a file is, or that it has the weights of."""
    candidates: list[Path] = []
    if path.suffix == ".caffemodel":
        candidates = [path.with_suffix(".prototxt"), *sorted(path.parent.glob("*.prototxt"))]
    elif path.suffix == ".params":
        stem = path.stem.rpartition("-")[0]
        candidates = [path.with_name(f"{stem}{_SYMBOL}")]
    elif path.suffix == ".bin":
        candidates = [path.with_suffix(".xml")]
    elif path.suffix == ".pb" and "init" in path.name:
        candidates = [path.with_name(path.name.replace("init", "predict"))]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if path.suffix in (".caffemodel", ".params"):
        missing = "a .prototxt" if path.suffix == ".caffemodel" else f"NAME{_SYMBOL}"
        raise MlmsError(f"{path} has weights only; put its network, {missing}, beside it")
    return path


def _framework_of(graph: Path) -> str:
    """Return the framework of a graph by its name; raises MlmsError for another file."""
    if graph.name.endswith(_SYMBOL):
        return "mxnet"
    if graph.name.endswith(_ARCHIVES):
        return "tensorflow"
    if graph.suffix == ".pb" and _init_net(graph):
        return "caffe2"
    framework = _FRAMEWORKS.get(graph.suffix.lower())
    if framework is None and graph.suffix.lower() == ".h5" and _has_network(graph):
        return "tensorflow"
    if framework is not None:
        return framework
    if graph.suffix.lower() in _WEIGHTS_ONLY:
        advice = "export the model, as with torch.onnx.export, torch.export.save or model.export"
        raise MlmsError(f"{graph} has weights without a network; {advice}, and name that file")
    known = ", ".join(sorted(_FRAMEWORKS))
    advice = f"name one of {known}, or the framework, as in onnxruntime={graph}"
    suffix = repr(graph.suffix) if graph.suffix else "a name without a suffix"
    raise MlmsError(f"{graph}: {suffix} tells no framework; {advice}")


def _has_network(graph: Path) -> bool:
    """Return whether an HDF5 file is a model of Keras, and not its weights only."""
    with graph.open("rb") as file:
        is_hdf5 = file.read(len(_HDF5_START)) == _HDF5_START
        return (
            is_hdf5
            and mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).find(_KERAS_NETWORK) >= 0
        )


def _weights_of(graph: Path, framework: str) -> Path | None:
    """Return the file beside a graph that has its weights; raises MlmsError if it must have one."""
    if framework == "mxnet":
        stem = graph.name.removesuffix(_SYMBOL)
        return _one(graph, sorted(graph.parent.glob(f"{stem}-*.params")), f"{stem}-0000.params")
    if graph.suffix == ".prototxt":
        same = graph.with_suffix(".caffemodel")
        found = [same] if same.is_file() else sorted(graph.parent.glob("*.caffemodel"))
        return _one(graph, found, same.name)
    if graph.suffix == ".xml":
        weights = graph.with_suffix(".bin")
        return _one(graph, [weights] if weights.is_file() else [], weights.name)
    if framework == "caffe2":
        return _init_net(graph)
    return None


def _one(graph: Path, found: Sequence[Path], example: str) -> Path:
    """Return the last of the files that may have the weights of a graph."""
    if not found:
        raise MlmsError(f"{graph} has no weights beside it; put them there as {example}")
    return found[-1]


def _init_net(graph: Path) -> Path | None:
    """Return the init net beside a predict net of Caffe2, None where there is none."""
    if "predict" not in graph.name:
        return None
    path = graph.with_name(graph.name.replace("predict", "init"))
    return path if path.is_file() else None
