"""The capabilities of this host: devices with their locks, interpreters, engines, frameworks."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

import psutil
import pytest
from mlms_predictors._run.gpus import Gpu, list_gpus, visible_gpus

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import device_name
from pytest_mlms.provide.host.locks import own_cores
from pytest_mlms.provide.host.machine import machine_state


class _HostDevice(TypedDict):
    name: str
    kind: str
    memory: int
    locks: Sequence[str]


class HostDevice(_HostDevice, total=False):
    """A device: its memory in bytes (0: unknown), and the names of the locks that hold it alone.

    ``uuid`` and ``driver`` are missing where they are unknown.
    """

    uuid: str
    driver: str


class Capabilities(TypedDict):
    """Offer of a host: plain values, as workers send them to the controller.

    ``plugin`` and ``python`` are versions, ``memory`` is in bytes, ``interpreters`` are versions
    such as 3.11 on PATH, ``frameworks`` are versions ("" if unknown) by name, and ``stacks`` the
    names of those whose environments have been made.
    """

    host: str
    labels: Mapping[str, str]
    plugin: str
    python: str
    architecture: str
    memory: int
    cores: int
    devices: Sequence[HostDevice]
    interpreters: Sequence[str]
    engines: Sequence[str]
    frameworks: Mapping[str, str]
    stacks: Sequence[str]


_Devices = dict[str, HostDevice]

_GATHERED = pytest.StashKey[Capabilities]()
_DEVICES = pytest.StashKey[_Devices]()
_ANNOUNCED = pytest.StashKey[Sequence[HostDevice]]()

_ENGINES = ("podman", "docker", "apptainer")
_ANNOUNCED_KEYS: Mapping[str, tuple[type, str]] = {
    "name": (str, "a text, as in 'cuda:0'"),
    "kind": (str, "a text"),
    "uuid": (str, "a text"),
    "driver": (str, "a text"),
    "memory": (int, "a number of bytes, as in 64 << 30"),
}
_PYTHONS = [f"3.{minor}" for minor in range(6, 16)]
_NO_FRAMEWORK = {*sys.stdlib_module_names, "mlms_predictors", "numpy", ""}


def gather(
    config: pytest.Config | None, cache: Path, predictors: Mapping[str, Path]
) -> Capabilities:
    """Return this host's capabilities, gathered once a session; without a ``config`` each time.

    ``cache`` has the environments of stacks, ``predictors`` are the files of predictors by
    framework. The hook pytest_mlms_devices adds devices, or replaces one of the same name.
    """
    if config is None:
        return _gather(None, cache, predictors)
    if _GATHERED not in config.stash:
        config.stash[_GATHERED] = _gather(config, cache, predictors)
    return config.stash[_GATHERED]


def uuid_of(device: str, config: pytest.Config | None) -> str:
    """Return the UUID of a device, which is the same in all sessions; "" where it is unknown.

    Without a ``config`` there is no hook, and devices are the driver's.
    """
    if device == "cpu":
        return ""
    found = _devices(config).get(device_name(device))
    if found is None:
        return ""
    return str(found.get("uuid", ""))


def selected_alone(device: str, config: pytest.Config | None) -> str:
    """Return the UUID that CUDA_VISIBLE_DEVICES must have for an agent of a device, else "".

    Where there are slices of GPUs (MIG), CUDA gives a process one of them, and no GPU beside it.
    """
    uuid = uuid_of(device, config)
    if not uuid:
        return ""
    uuids = [str(found.get("uuid", "")) for found in _devices(config).values()]
    return uuid if any(other.startswith("MIG-") for other in uuids) else ""


def labels(text: str) -> dict[str, str]:
    """Return the labels that MLMS_LABELS gives a host, as in "gpu=new-driver,rack=3"."""
    found = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        if name:
            found[name.strip()] = value.strip()
    return found


def frameworks(predictors: Mapping[str, Path]) -> dict[str, str]:
    """Return the version of each framework that this interpreter has, "" where it is unknown.

    ``predictors`` are the files of predictors by framework. Nothing is imported.
    """
    found = {}
    for name, path in predictors.items():
        imports = _imports_of(path)
        if imports.are_there():
            found[name] = _version(name) or imports.version()
    return found


def missing_here(predictor: Path) -> list[str]:
    """Return the packages that a predictor's file needs and that this interpreter surely lacks.

    Nothing is imported. A file that changes sys.path may find modules that this process doesn't.
    """
    needed = sorted(_imports_of(predictor).needed)
    missing = [name for name in needed if not _is_there(name)]
    if missing and b"sys.path" in predictor.read_bytes():
        return []
    return missing


def line_of_import(predictor: Path, module: str, name: str | None = None) -> int:
    """Return the first line of a predictor's file that imports a module's package, else 1.

    Where there is a ``name``, it is one that imports this from the package.
    """
    package = module.partition(".")[0]
    try:
        tree = ast.parse(predictor.read_bytes())
    except (OSError, SyntaxError):
        return 1
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and package in _imported([node])
    ]
    by_name = [node for node in found if name in [alias.name for alias in node.names]]
    return next((node.lineno for node in by_name or found), 1)


def _gather(
    config: pytest.Config | None, cache: Path, predictors: Mapping[str, Path]
) -> Capabilities:
    from pytest_mlms.provide.stacks.environments import environments

    made = environments(cache)
    return {
        "host": socket.gethostname(),
        "labels": labels(os.environ.get("MLMS_LABELS", "")),
        "plugin": pytest_mlms.__version__,
        "python": platform.python_version(),
        "architecture": platform.machine(),
        "memory": psutil.virtual_memory().total,
        "cores": len(own_cores()),
        "devices": list(_devices(config).values()),
        "interpreters": [version for version in _PYTHONS if shutil.which(f"python{version}")],
        "engines": [name for name in _ENGINES if shutil.which(name)],
        "frameworks": frameworks(predictors),
        "stacks": sorted({environment.stack for environment in made}),
    }


def _devices(config: pytest.Config | None) -> _Devices:
    """Return this host's devices by name, found once a session."""
    if config is None:
        return _find_devices(None)
    if _DEVICES not in config.stash:
        config.stash[_DEVICES] = _find_devices(config)
    return config.stash[_DEVICES]


def _find_devices(config: pytest.Config | None) -> _Devices:
    devices = {"cpu": _cpu()}
    gpus = visible_gpus(list_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    for index, gpu in enumerate(gpus):
        name = f"cuda:{index}"
        devices[name] = _gpu(name, gpu)
    for device in announced_devices(config) if config else ():
        devices[device["name"]] = device
    return devices


def announced_devices(config: pytest.Config) -> Sequence[HostDevice]:
    """Return the devices that the hook pytest_mlms_devices announces, asked once a session.

    Raises MlmsError the first time where one of them is none: there are none then.
    """
    if _ANNOUNCED not in config.stash:
        config.stash[_ANNOUNCED] = ()
        found = []
        for announced in config.hook.pytest_mlms_devices(config=config):
            is_list = isinstance(announced, Iterable) and not isinstance(announced, (Mapping, str))
            if announced is not None and not is_list:
                raise MlmsError(
                    f"pytest_mlms_devices returned {announced!r}; return a list of dicts"
                )
            found += [_announced(device) for device in announced or ()]
        config.stash[_ANNOUNCED] = found
    return config.stash[_ANNOUNCED]


def _cpu() -> HostDevice:
    host = socket.gethostname()
    cpu = machine_state().get("cpu", {})
    return {
        "name": "cpu",
        "kind": cpu.get("model") or platform.machine(),
        "memory": psutil.virtual_memory().total,
        "locks": [f"{host} core-{core}" for core in own_cores()],
    }


def _gpu(name: str, gpu: Gpu) -> HostDevice:
    return {
        "name": name,
        "kind": gpu.name,
        "uuid": gpu.uuid,
        "memory": gpu.memory,
        "driver": gpu.driver,
        "locks": [gpu.uuid],
    }


def _announced(device: Any) -> HostDevice:
    """Return a device that a hook announced, completed: it must have a name only."""
    if not isinstance(device, Mapping) or "name" not in device:
        raise MlmsError(
            f"pytest_mlms_devices announced {device!r}; it must be a dict with a 'name'"
        )
    known = {}
    for key, (kind, wanted) in _ANNOUNCED_KEYS.items():
        value = device.get(key, kind())
        if not isinstance(value, kind):
            problem = f"pytest_mlms_devices announced {device!r}"
            raise MlmsError(f"{problem}; its {key} must be {wanted}")
        if key in device:
            known[key] = kind(value)
    name = known["name"]
    lock = known.get("uuid") or f"{socket.gethostname()} {name}"
    completed = {"kind": name, "memory": 0, "locks": [lock], **known}
    return cast("HostDevice", completed)


class _Imports(NamedTuple):
    """The packages that a predictor's file imports.

    ``needed`` are those that are imported with the file itself, ``some`` all that it imports
    anywhere.
    """

    needed: set[str]
    some: set[str]

    def are_there(self) -> bool:
        """Return whether the needed packages are there; if there are none, one of the others."""
        if self.needed:
            return all(map(_is_there, self.needed))
        return not self.some or any(map(_is_there, self.some))

    def version(self) -> str:
        """Return the version of the one package that is needed, "" where there are several."""
        if len(self.needed) != 1:
            return ""
        (name,) = self.needed
        return _version(name)


def _imports_of(path: Path) -> _Imports:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError):  # the agent says what is wrong with it
        return _Imports(set(), set())
    return _Imports(_packages(tree.body), _packages(ast.walk(tree)))


def _packages(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the packages that some nodes import, without those that no framework is in."""
    return _imported(nodes) - _NO_FRAMEWORK


def _imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the packages that some nodes import."""
    modules = []
    for node in nodes:
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.append(node.module or "")
    return {module.partition(".")[0] for module in modules}


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""
