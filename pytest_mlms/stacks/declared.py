"""The stacks that there are, and which of them a run uses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pytest_mlms.errors import ManifestError, StackError
from pytest_mlms.manifest.types import instead
from pytest_mlms.records import Stack
from pytest_mlms.stacks.schema import STACK_FILES, load_stacks

__all__ = [
    "DEFAULT",
    "HERE",
    "check_framework",
    "check_labels",
    "choose",
    "declared_stacks",
    "resolve",
    "stacks_for",
]

HERE = Stack("here", "", interpreter="current")
"""The stack that needs no declaration: the interpreter that runs pytest, and whatever it has."""

DEFAULT = "onnxruntime"
"""The framework that runs where nothing is chosen."""
_FRAMEWORKS = {
    "ai-edge-litert": "tflite",
    "apache-tvm": "tvm",
    "cntk-gpu": "cntk",
    "jax-cuda12-plugin": "jax",
    "kendryte-caffe": "caffe",
    "mxnet-cu112": "mxnet",
    "onnxruntime-gpu": "onnxruntime",
    "onnxruntime-openvino": "onnxruntime",
    "opencv-contrib-python": "opencv",
    "opencv-contrib-python-headless": "opencv",
    "opencv-python": "opencv",
    "opencv-python-headless": "opencv",
    "tensorflow-cpu": "tensorflow",
    "tensorrt-cu12": "tensorrt",
    "tensorrt-cu13": "tensorrt",
    "tflite-runtime": "tflite",
    "torch": "pytorch",
}
"""Distribution -> framework, where the names differ."""


def declared_stacks(root: Path, manifests: Iterable[Path] = ()) -> dict[str, Stack]:
    """Return the stacks that stacks.yaml and pyproject.toml declare; HERE where none does.

    Looked at are ``root`` and the folders of ``manifests``, with those between a folder and the
    root that it is in. Raises ManifestError with every fault.
    """
    found: dict[str, Stack] = {}
    for path in _files(root, manifests):
        for name, stack in load_stacks(path).items():
            if name in found:
                raise ManifestError(
                    f"{stack.place}: stack {name!r} is also in {found[name].place}; rename one of them"
                )
            found[name] = stack
    return {HERE.name: HERE, **found}


def _files(root: Path, manifests: Iterable[Path]) -> Iterator[Path]:
    folders = [root]
    for path in manifests:
        folder = path if path.is_dir() else path.parent
        folders += [folder, *(above for above in folder.parents if above.is_relative_to(root))]
    names = (*STACK_FILES, "pyproject.toml")
    paths = [folder / name for folder in folders for name in names if (folder / name).is_file()]
    yield from {path.resolve(): path for path in paths}.values()


def choose(
    words: Sequence[str],
    declared: Mapping[str, Stack],
    frameworks: Collection[str],
    option: str = "--mlms-stack",
) -> list[Stack]:
    """Return the stacks that the words of an option mean, each once; raises StackError."""
    chosen: dict[str, Stack] = {}
    for word in words:
        everything = [stack for stack in declared.values() if stack is not HERE]
        if word == "all" and not everything:
            raise StackError(
                f"{option}: no stack is declared; write a stacks.yaml, name its folder by --mlms-manifests, or name a "
                f"requirement"
            )
        for stack in everything if word == "all" else [resolve(word, declared, frameworks, option)]:
            check_framework(stack, frameworks)
            chosen[stack.name] = stack
    return list(chosen.values())


def check_framework(stack: Stack, frameworks: Collection[str]) -> None:
    """Raise StackError where there is no predictor for a stack's framework."""
    if stack.framework and stack.framework not in frameworks:
        known = instead(stack.framework, sorted(frameworks))
        raise StackError(
            f"{stack.place}: no predictor for {stack.framework!r}; {known} (--mlms-predictors DIR adds others)"
        )


def check_labels(words: Sequence[str], frameworks: Collection[str]) -> None:
    """Raise StackError for a requirement with one = too few, which reads as a label of hosts and
    would run nowhere.
    """
    for word in words:
        name, _, version = word.partition("=")
        if _FRAMEWORKS.get(canonicalize_name(name), name) in frameworks:
            raise StackError(
                f"{word} would be a label of hosts; for a version write {name}=={version}"
            )


def resolve(
    word: str,
    declared: Mapping[str, Stack],
    frameworks: Collection[str],
    option: str = "--mlms-stack",
) -> Stack:
    """Return the stack of this name, or the one that an ad hoc requirement or an interpreter's path
    makes.

    Several requirements are joined by commas, and the first says which framework it is. numpy,
    which agents need and not every framework, is added where it isn't one of them. Raises
    StackError, which lists what there is.
    """
    if word in declared:
        return declared[word]
    if "/" in word and "@" not in word and not word.endswith(".whl"):
        return Stack(word, "", interpreter=str(Path(word).expanduser().absolute()))
    try:
        parts = [Requirement(part) for part in _split(word)]
    except InvalidRequirement:
        raise StackError(f"{option}: {_unknown(word, declared)}") from None
    name = canonicalize_name(parts[0].name)
    framework = _FRAMEWORKS.get(name, name.replace("-", "_"))
    if framework not in frameworks:
        raise StackError(f"{option}: {_unknown(word, declared)}; no framework is known by {name!r}")
    needed = () if any(canonicalize_name(part.name) == "numpy" for part in parts) else ("numpy",)
    asked = tuple(map(str, parts))
    return Stack(",".join(asked), framework, requirements=(*asked, *needed))


def _split(word: str) -> list[str]:
    """Split at the commas between requirements, not at those between the versions of one."""
    return re.split(r",(?=\s*[A-Za-z0-9])(?![^\[]*\])", word)


def _unknown(word: str, declared: Mapping[str, Stack]) -> str:
    return (
        f"{word!r} is neither a stack nor a requirement such as onnxruntime==1.30.0; "
        f"{instead(word, sorted(declared))} (stacks.yaml declares others)"
    )


def stacks_for(
    framework: str, chosen: Sequence[Stack], offered: Collection[str], here: Stack = HERE
) -> list[Stack]:
    """Return the stacks that run ``framework``, of a manifest that has models for those
    ``offered``.

    Where nothing is chosen it is the interpreter that runs pytest, with ONNX Runtime if the
    manifest has it.
    """
    if not chosen:
        chosen = [here] if framework == DEFAULT or DEFAULT not in offered else []
    return [
        replace(stack, framework=framework, several=not stack.framework)
        for stack in chosen
        if stack.framework in ("", framework)
    ]
