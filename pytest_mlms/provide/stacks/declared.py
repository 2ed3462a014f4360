"""The declared stacks, and the choice of stacks that a run uses."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from mlms_predictors._run.options import serves_of
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pytest_mlms.core.errors import ManifestError, StackError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.text import redact
from pytest_mlms.manifest.load import option_problems
from pytest_mlms.manifest.types import instead
from pytest_mlms.provide.stacks.recorded import HIDDEN
from pytest_mlms.provide.stacks.schema import STACK_FILES, is_wheel, load_stacks, names_place
from pytest_mlms.provide.stacks.variables import is_secret

__all__ = [
    "DEFAULT",
    "HERE",
    "NOT_COLLECTED",
    "DeclaredStacks",
    "check_framework",
    "check_labels",
    "choose",
    "declared_stacks",
    "folders_of",
    "framework_of",
    "install_advice",
    "installed_by",
    "is_published",
    "package_of",
    "resolve",
    "serves",
    "stack_files",
    "stacks_for",
    "variant_stacks",
]

HERE = Stack("here", "", interpreter="current")
"""The stack that needs no declaration: the interpreter that runs pytest, with its packages."""

DEFAULT = "onnxruntime"
"""The framework that runs where no stack is chosen."""

_FILES = (*STACK_FILES, "pyproject.toml")

NOT_COLLECTED = ("*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}")
"""The default of pytest's norecursedirs."""

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
"""The framework of each distribution that has another name than its framework."""

_INSTALLED_BY = {
    "caffe": "kendryte-caffe numpy<1.24 protobuf<4",
    "caffe2": "torch==1.10.2 numpy<1.24 protobuf<3.21 future six",
    "cntk": "cntk",
    "jax": "jax",
    "mxnet": "mxnet==1.9.1 numpy<1.24",
    "onnxruntime": "onnxruntime",
    "opencv": "opencv-python-headless",
    "openvino": "openvino",
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "tensorrt": "tensorrt",
    "tflite": "ai-edge-litert",
}
"""The requirements of each framework of ours."""

_OLD = ("caffe", "caffe2", "cntk", "mxnet")
"""Frameworks that few interpreters that run pytest can have."""

_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_VARIANT = re.compile(rf"""(?:^|[{{,\s])variant:[ \t]*["']?({_WORD})""")
_VARIABLE = re.compile(r"\+([A-Za-z_]\w*)=(?!=)")
"""The beginning of a variable behind a stack; a local version such as +cpu has no equals sign."""

_VERSION = re.compile(r"[=\s]*(\d+(?:\.\w+)*(?:\+[\w.]+)?)")
_COMMA = re.compile(r",(?=\s*[A-Za-z0-9])(?![^\[]*\])")
_BLANK = re.compile(r"(?<![\s,@=<>!~])\s+(?=[A-Za-z])(?![^\[]*\])")
"""Between two requirements, not behind the operator or the comma of one."""


class DeclaredStacks(dict[str, Stack]):
    """Declared stacks by name, with HERE, and the folders and files that they were searched in.

    Of ``files``, those that may declare stacks, a pyproject.toml may declare none.
    """

    def __init__(self, stacks: Mapping[str, Stack], folders: Sequence[Path], files: Sequence[Path]):
        super().__init__(stacks)
        self.folders = tuple(folders)
        self.files = tuple(files)


def declared_stacks(
    root: Path, manifests: Iterable[Path] = (), norecursedirs: Sequence[str] = NOT_COLLECTED
) -> DeclaredStacks:
    """Return the stacks that stacks.yaml and pyproject.toml declare.

    They are searched for in ``root``, in the folders of ``manifests`` and those below, and in the
    folders between these and the root. A stack that files below declare alike is one. Raises
    ManifestError with all errors of a file.
    """
    paths = list(manifests)
    files = list(stack_files(root, paths, norecursedirs))
    upper = set(folders_of(root, paths))
    found: dict[str, Stack] = {}
    for path in files:
        for name, stack in load_stacks(path).items():
            if name in found:
                other = found[name].place
                if path.parent not in upper and replace(stack, place=other) == found[name]:
                    continue
                problem = f"stack {name!r} is also in {other}"
                raise ManifestError(f"{stack.place}: {problem}; rename one of them")
            found[name] = stack
    folders = dict.fromkeys([root, *(path if path.is_dir() else path.parent for path in paths)])
    return DeclaredStacks({HERE.name: HERE, **found}, list(folders), files)


def stack_files(
    root: Path, manifests: Iterable[Path], norecursedirs: Sequence[str] = NOT_COLLECTED
) -> Iterator[Path]:
    """Yield the files that may declare stacks, each once; of absolute paths, all."""
    paths = list(manifests)
    seen = set()
    for folder in folders_of(root, paths):
        for path in (folder / name for name in _FILES):
            if path.is_file() and path.resolve() not in seen:
                seen.add(path.resolve())
                yield path
    for folder in filter(Path.is_dir, paths):
        for path in _files_below(folder, norecursedirs):
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def _files_below(top: Path, norecursedirs: Sequence[str]) -> Iterator[Path]:
    """Yield each stacks.yaml below a folder, where pytest collects manifests.

    Hidden folders, such as those of results, packages that were built and virtual environments
    have files of others.
    """
    for folder, folders, names in os.walk(top):
        below = sorted(Path(folder, name) for name in folders)
        folders[:] = [path.name for path in below if not _is_of_others(path, norecursedirs)]
        for name in STACK_FILES:
            path = Path(folder, name)
            if name in names and path.is_file():
                yield path


def _is_of_others(folder: Path, norecursedirs: Sequence[str]) -> bool:
    """Return whether pytest doesn't collect a folder; a pattern with a slash is of its path."""
    for pattern in norecursedirs:
        of_path = "/" in pattern
        name = str(folder) if of_path else folder.name
        if fnmatch.fnmatchcase(name, os.path.join("*", pattern) if of_path else pattern):
            return True
    of_environments = ("pyvenv.cfg", "conda-meta/history")
    return any(os.path.isfile(folder / name) for name in of_environments)


def folders_of(root: Path, manifests: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders in which stacks are declared, but those below; of absolute paths, all."""
    yield root
    for path in manifests:
        folder = path if path.is_dir() else path.parent
        yield folder
        for parent in folder.parents:
            if parent.is_relative_to(root):
                yield parent


def variant_stacks(manifests: Iterable[Path]) -> dict[str, Stack]:
    """Return a stack for each variant of the manifests.

    It is the interpreter that runs pytest, with the models of this variant. The files are searched
    for the word, as manifests that are no good are reported later.
    """
    written: set[str] = set()
    for path in manifests:
        for file in sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                written.update(_VARIANT.findall(file.read_text(encoding="utf-8")))
    return {name: replace(HERE, variant=name) for name in sorted(written)}


def choose(
    values: Sequence[str],
    declared: Mapping[str, Stack],
    frameworks: Collection[str],
    option: str = "--mlms-stack",
) -> list[Stack]:
    """Return the stacks that the values of an option mean, each once; raises StackError."""
    chosen: dict[Stack, None] = {}
    for value in values:
        if value == "all":
            stacks = _all_declared(declared, option)
        else:
            stacks = [resolve(value, declared, frameworks, option)]
        for stack in stacks:
            check_framework(stack, frameworks)
            chosen[stack] = None
    return list(chosen)


def _all_declared(declared: Mapping[str, Stack], option: str) -> list[Stack]:
    stacks = [stack for name, stack in declared.items() if stack.name == name and stack is not HERE]
    if not stacks:
        advice = "write a stacks.yaml, name its folder by --mlms-manifests, or name a requirement"
        raise StackError(f"{option}: no stack is declared; {advice}")
    return stacks


def check_framework(stack: Stack, frameworks: Collection[str]) -> None:
    """Raise StackError where there is no predictor for a stack's framework, or for its options."""
    if stack.framework and stack.framework not in frameworks:
        known = instead(stack.framework, sorted(frameworks))
        problem = f"no predictor for {stack.framework!r}"
        advice = f"{known} (--mlms-predictors DIR adds others)"
        raise StackError(f"{stack.place}: {problem}; {advice}")
    if stack.agent:
        return  # it has options of its own, and refuses others
    path = frameworks.get(stack.framework) if isinstance(frameworks, Mapping) else None
    if stack.server and path is not None and not serves(path):
        key = "serve" if stack.serve else "endpoint"
        problem = f"{stack.framework} runs models itself, and asks no server"
        raise StackError(
            f"{stack.place}: {problem}; write 'framework: oip' or 'openai', or leave out {key!r}"
        )
    for _, problem in option_problems(stack.framework, dict(stack.model_options), frameworks):
        raise StackError(f"{stack.place}: {problem}")


@lru_cache
def serves(predictor: Path) -> bool:
    """Return whether a predictor, by its file, speaks with servers instead of running models."""
    try:
        return bool(serves_of(predictor))
    except (OSError, UnicodeDecodeError):  # the agent tells why it can't be read
        return False


def is_published(framework: str) -> bool:
    """Return whether a framework's packages have well-known names, which are nobody else's."""
    return framework in _INSTALLED_BY


def installed_by(framework: str) -> str:
    """Return the requirements of a framework of ours, with blanks between; its name for another."""
    return _INSTALLED_BY.get(framework, framework)


def install_advice(framework: str) -> str:
    """Return what to do where a framework is missing: the line to type."""
    wanted = _INSTALLED_BY.get(framework)
    if wanted is None:
        return "install it there"
    if framework in _OLD:
        return f"use --mlms-stack '{wanted}', with an older Python where that needs one"
    return f"pip install {wanted}, or use --mlms-stack {wanted}"


def check_labels(values: Sequence[str], frameworks: Collection[str]) -> None:
    """Raise StackError for a requirement with one = instead of two.

    It would be taken for a label of hosts, and run nowhere.
    """
    for value in values:
        name, _, version = value.partition("=")
        if framework_of(name) in frameworks:
            advice = f"for a version write {name}=={version}"
            raise StackError(f"{value} would be a label of hosts; {advice}")


def resolve(
    value: str,
    declared: Mapping[str, Stack],
    frameworks: Collection[str],
    option: str = "--mlms-stack",
) -> Stack:
    """Return the stack of this name, or an ad hoc one for a requirement or an interpreter's path.

    ``+NAME=VALUE`` behind it sets a variable of its environment. Several requirements are joined by
    blanks or commas, and the first one says which framework it is. numpy is added where it isn't
    one of them: agents need it, not every framework does. Raises StackError, which lists the
    declared stacks.
    """
    if value in declared:
        return declared[value]
    value, *parts = _VARIABLE.split(value)
    if parts:
        stack = resolve(value, declared, frameworks, option)
        env, name = dict(stack.env), stack.name
        for variable, text in zip(parts[::2], parts[1::2], strict=True):
            env[variable] = text
            name += f"+{variable}={HIDDEN if is_secret(variable, text) else redact(text)}"
        return replace(stack, name=name, env=tuple(env.items()))
    is_place = any(map(names_place, _split(value)))
    if "/" in value and not is_place and not value.endswith(".whl"):
        path = Path(os.path.expanduser(value))
        return Stack(value, "", interpreter=str(path.absolute()))
    try:
        requirements = [Requirement(part) for part in _split(value)]
    except InvalidRequirement:
        problem = _unknown(value, declared)
        raise StackError(f"{option}: {problem}") from None
    first = canonicalize_name(requirements[0].name)
    framework = framework_of(first)
    if framework not in frameworks:
        other = "" if _VERSION.fullmatch(value) else f"; no framework is known by {first!r}"
        raise StackError(f"{option}: {_unknown(value, declared)}{other}")
    return _ad_hoc(framework, requirements)


def _ad_hoc(framework: str, requirements: Sequence[Requirement]) -> Stack:
    written = [str(requirement) for requirement in requirements]
    names = {canonicalize_name(requirement.name) for requirement in requirements}
    name = redact(",".join(written))  # of an address; names are in ids
    if "numpy" not in names:
        written.append("numpy")
    return Stack(name, framework, requirements=tuple(written))


def package_of(requirement: str) -> str:
    """Return the name of the package of a requirement, which may be a wheel's file."""
    if is_wheel(requirement):
        return Path(requirement).name.partition("-")[0]
    return Requirement(requirement).name


def framework_of(distribution: str) -> str:
    """Return the framework that a distribution has, by either's name."""
    name = canonicalize_name(distribution)
    return _FRAMEWORKS.get(name, name.replace("-", "_"))


def _split(value: str) -> list[str]:
    """Split at the commas and blanks between requirements, not at those within one.

    A marker, behind a semicolon, ends at a comma only.
    """
    parts = []
    for part in _COMMA.split(value):
        names, semicolon, marker = part.partition(";")
        *others, last = _BLANK.split(names.strip())
        parts += [*others, f"{last}{semicolon}{marker}"]
    return parts


def _unknown(value: str, declared: Mapping[str, Stack]) -> str:
    known = instead(value, sorted(declared))
    version = _VERSION.fullmatch(value)
    if version:
        known = f"for a release write NAME=={version[1]}; {known}"
    problem = f"{value!r} is neither a stack nor a requirement such as onnxruntime==1.30.0"
    variants = [name for name, stack in declared.items() if stack.variant and stack.name != name]
    also = f"; the variants of models are {', '.join(variants)}" if variants else ""
    return f"{problem}; {known} ({_where_declared(declared)}){also}"


def _where_declared(declared: Mapping[str, Stack]) -> str:
    """Return which files were read, or where there is none."""
    if not isinstance(declared, DeclaredStacks):
        return "stacks.yaml declares others"
    declaring = [stack.place.path for stack in declared.values() if stack.place is not None]
    files = [*declaring, *(file for file in declared.files if file.name in STACK_FILES)]
    if files:
        return f"stacks are declared in {_listed(files)}"
    return f"there is no stacks.yaml in {_listed(declared.folders)}"


def _listed(paths: Iterable[Path]) -> str:
    return ", ".join(dict.fromkeys(map(os.path.relpath, paths)))


def stacks_for(
    framework: str, chosen: Sequence[Stack], offered: Collection[str], here: Stack = HERE
) -> list[Stack]:
    """Return the stacks that run the model for ``framework`` of a manifest.

    ``offered`` are the frameworks that the manifest has models for. Where no stack is chosen, the
    interpreter that runs pytest runs the model for ONNX Runtime, or all models if there is none.
    No two stacks have the same label: where that interpreter and a stack called after the framework
    are chosen, the latter runs its model.
    """
    if chosen:
        candidates = list(chosen)
    elif framework == DEFAULT or DEFAULT not in offered:
        candidates = [here]
    else:
        candidates = []
    found: dict[tuple[str, str], Stack] = {}
    for stack in candidates:
        if stack.framework not in ("", framework):
            continue
        several = not stack.framework
        made = replace(stack, framework=framework, several=several)
        key = (made.label, made.variant)
        if key not in found or not several:
            found[key] = made
    return list(found.values())
