"""The control of a host: a tiny model on a stack that never changes.

Its figures change with the machine only. A step of them says that steps of other series at the same
time may be the machine's, too.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.artifacts.digest import digest_of
from pytest_mlms.provide.stacks.exact_packages import parse_package
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.launch import prepare

CONTROL = "mlms-control"
"""The name of the model, of its stack and of their folder."""

_MODEL = "control.onnx"
_LOCK = "control.lock"
_PINNED = ("onnxruntime", "numpy")

_MANIFEST = """\
# The control of each host that runs these manifests: mlms history control wrote it.
# It always runs on the stack of stacks.yaml in this folder, so that only the machine changes what
# it measures. Write it anew after a change of its stack or its model: this begins a new series.
name: {name}
version: 1.0.0
task: regression
license: MIT
models: [{{framework: onnxruntime, graph: {model}, sha256: {digest}}}]
inputs: [{{name: x, type: tensor, element_type: float32, shape: [batch, 256], range: [0, 1]}}]
outputs: [{{name: y, type: tensor}}]
control: {name}
evaluate: {{batch_sizes: [32], threads: 1}}
"""


@dataclass(frozen=True)
class ControlFiles:
    """The files of a control, in a folder of manifests."""

    folder: Path

    @property
    def manifest(self) -> Path:
        """The manifest."""
        return self.folder / "control.yaml"

    @property
    def exists(self) -> bool:
        """True if the folder has a control."""
        return self.manifest.is_file()


def control_files(manifests: Path) -> ControlFiles:
    """Return where the control of a folder of manifests is."""
    return ControlFiles(manifests / CONTROL)


def write_control(control: ControlFiles, cache: Path, show: Show) -> tuple[str, ...]:
    """Write a control with the newest packages, all pinned; return these.

    Its environment is made, which says what to pin. The Python is pinned to its minor version, as
    fixes of Python come with the system. Raises MlmsError where there is a control already, or
    where the environment can't be made.
    """
    if control.exists:
        problem = f"{control.manifest}: there is a control already"
        raise MlmsError(f"{problem}; remove {control.folder} first, which begins new series")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    stack = Stack(CONTROL, "onnxruntime", python=python, requirements=_PINNED)
    packages = prepare(stack, cache, show=show).lock
    _write_files(control.folder, replace(stack, requirements=_exact(packages)), packages)
    return packages


def _exact(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requirements of a stack with the versions that it has."""
    parsed = {}
    for line in packages:
        package = parse_package(line)
        if package is not None:
            parsed[package.key] = line
    return tuple(parsed[name] for name in _PINNED)


def _write_files(folder: Path, stack: Stack, packages: tuple[str, ...]) -> None:
    entry = {
        "framework": stack.framework,
        "python": stack.python,
        "requirements": list(stack.requirements),
        "lock": _LOCK,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _MODEL, files(__package__).joinpath(_MODEL).read_bytes())
        write_atomically(folder / _LOCK, "".join(f"{line}\n" for line in packages))
        write_atomically(folder / "stacks.yaml", f"{CONTROL}: {json.dumps(entry)}\n")
        digest = digest_of(folder / _MODEL)
        text = _MANIFEST.format(name=CONTROL, model=_MODEL, digest=digest)
        write_atomically(folder / "control.yaml", text)  # last: it is a control with all files
    except OSError as error:
        problem = f"{error.strerror} ({error.filename or folder})"
        raise MlmsError(
            f"the control can't be written: {problem}; grant access or make room"
        ) from error
