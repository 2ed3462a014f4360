"""What this host can run, as plain values that travel.

Devices with their locks, interpreters, engines, frameworks.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

import pytest_mlms
from pytest_mlms.host.gpus import visible_gpus
from pytest_mlms.host.locks import own_cores
from pytest_mlms.host.machine import machine_state
from pytest_mlms.records import device_name
from pytest_mlms.session import SESSION
from pytest_mlms.stacks.environments import environments

__all__ = ["Capabilities", "gather", "uuid_of"]

Capabilities = Mapping[str, Any]

_GATHERED = pytest.StashKey[dict[str, Any]]()
_DEVICES = pytest.StashKey[dict[str, dict[str, Any]]]()
_ENGINES = ("podman", "docker", "apptainer")
_NO_FRAMEWORK = {*sys.stdlib_module_names, "mlms_predictors", "numpy", ""}
_PYTHONS = [f"3.{minor}" for minor in range(6, 16)]


def gather(config: pytest.Config) -> dict[str, Any]:
    """Return what this process can offer.

    The hook pytest_mlms_devices adds devices, or replaces one of its name.
    """
    if _GATHERED not in config.stash:
        config.stash[_GATHERED] = _gather(config)
    return config.stash[_GATHERED]


def uuid_of(device: str, config: pytest.Config) -> str:
    """Return what a device is among all hosts, whatever a session calls it.

    "" where nobody says.
    """
    return (
        ""
        if device == "cpu"
        else str(_devices(config).get(device_name(device), {}).get("uuid", ""))
    )


def _devices(config: pytest.Config) -> dict[str, dict[str, Any]]:
    if _DEVICES not in config.stash:
        config.stash[_DEVICES] = devices = {device["name"]: device for device in _own_devices()}
        for found in config.hook.pytest_mlms_devices(config=config):
            devices.update((device["name"], _announced(device)) for device in found or ())
    return config.stash[_DEVICES]


def _gather(config: pytest.Config) -> dict[str, Any]:
    session = config.stash[SESSION]
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
        "frameworks": frameworks(session.predictors),
        "stacks": sorted({made.stack for made in environments(session.cache)}),
    }


def labels(text: str) -> dict[str, str]:
    """Return the labels that a host carries: "gpu=new-driver,rack=3" of MLMS_LABELS as a dict."""
    return {
        name.strip(): value.strip()
        for name, _, value in (pair.partition("=") for pair in text.split(","))
        if name
    }


def frameworks(predictors: Mapping[str, Path]) -> dict[str, str]:
    """Return the version ("" if unknown) of each framework that this interpreter has, without
    importing any.
    """
    found = {}
    for name, path in predictors.items():
        needed, some = _imported(path)
        if all(map(_is_there, needed)) and (needed or not some or any(map(_is_there, some))):
            (module,) = needed if len(needed) == 1 else [""]
            found[name] = _version(name) or _version(module)
    return found


def _own_devices() -> Iterable[dict[str, Any]]:
    host, state = socket.gethostname(), machine_state()
    locks = [f"{host} core-{core}" for core in own_cores()]
    kind = state.get("cpu", {}).get("model") or platform.machine()
    yield {"name": "cpu", "kind": kind, "memory": psutil.virtual_memory().total, "locks": locks}
    for index, gpu in enumerate(visible_gpus()):
        facts = {
            "kind": gpu.name,
            "uuid": gpu.uuid,
            "memory": gpu.memory,
            "driver": gpu.driver,
            "locks": [gpu.uuid],
        }
        yield {"name": f"cuda:{index}", **facts}


def _announced(device: Mapping[str, Any]) -> dict[str, Any]:
    lock = device.get("uuid") or f"{socket.gethostname()} {device['name']}"
    return {"kind": device["name"], "memory": 0, "locks": [lock], **device}


def _imported(path: Path) -> tuple[set[str], set[str]]:
    """Return the packages that a predictor's file needs to be imported itself, and those that it
    imports anywhere.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError):
        return set(), set()
    return _packages(tree.body), _packages(ast.walk(tree))


def _packages(nodes: Iterable[ast.AST]) -> set[str]:
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names - _NO_FRAMEWORK


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
