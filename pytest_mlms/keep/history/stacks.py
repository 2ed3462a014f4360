"""The software that an item ran with: its exact packages, Python and driver."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from pytest_mlms.core.recorded import recorded_launch
from pytest_mlms.keep.history.machine_class import device_kind

VARIABLE = "$"
"""The begin of a variable's name, where it stands beside packages."""

_LONGEST = 400  # characters of a variable's value
_ORIGIN = " # "
_ADDRESS = " @ "
_WHEEL = re.compile(r"/[^/]+?-([^/-]+)(-\d[^/-]*)?-[^/-]+-[^/-]+-[^/-]+\.whl")
_LOCAL = re.compile(r"(file://|/)\S*")


@dataclass(frozen=True)
class Software:
    """The software of a stack.

    ``packages`` are versions by name, ``origins`` are where those come from that no index has.
    """

    framework: str
    python: str | None
    driver: str | None
    packages: Mapping[str, str]
    origins: Mapping[str, str]

    @cached_property
    def lock_sha256(self) -> str:
        """The digest of the sorted packages with Python and the driver.

        A local folder counts as one, whichever it is, as each job of a CI has another.
        """
        lines = [f"{self.framework} python {self.python} driver {self.driver}"]
        for name, version in sorted(self.packages.items()):
            origin = _LOCAL.sub("local", self.origins.get(name, ""))
            lines.append(f"{name}=={version} {origin}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def software_of(line: Mapping[str, Any]) -> Software:
    """Return the software of an item's line of results.jsonl.

    What only the predictor tells, such as cuDNN's version, counts as a package, and so do an image,
    whose version is its id, and the caller's variables ("$NAME"), which change what is measured as
    a version does. Where exact packages are not known, there are only these.
    """
    launch = recorded_launch(line)
    of_agent = tuple((line.get("versions") or {}).items())
    variables = tuple((launch.inherited or {}).items())
    driver = _driver_of(line)
    return _software(
        line["framework"], line.get("python"), driver, launch.exact, of_agent, variables
    )


@lru_cache(maxsize=64)  # the items of a run share few stacks, each of a hundred packages
def _software(
    framework: str,
    python: str | None,
    driver: str | None,
    listed: Sequence[str],
    versions: Sequence[tuple[str, str]],
    variables: Sequence[tuple[str, str]],
) -> Software:
    packages: dict[str, str] = {}
    origins = {}
    for text in listed:
        name, version, origin = _parsed(text)
        packages[name] = version
        if origin:
            origins[name] = origin
    for name, version in versions:
        packages.setdefault(canonical_name(name), str(version))
    for name, value in variables:
        digest = hashlib.sha256(value.encode(errors="replace")).hexdigest()
        is_short = len(value) <= _LONGEST
        packages[f"{VARIABLE}{name}"] = value if is_short else f"{value[:_LONGEST]}… {digest[:8]}"
    return Software(framework, python, driver, packages, origins)


def canonical_name(name: str) -> str:
    """Return the form of a distribution's name that PEP 503 compares; a variable's as it is."""
    if name.startswith(VARIABLE):
        return name
    return canonicalize_name(name)


def _parsed(text: str) -> tuple[str, str, str]:
    """Return name, version and origin of a line of ``launch.lock`` or ``launch.packages``.

    The version of a package with an address is that of its wheel, or else the address.
    """
    exact, _, origin = text.partition(_ORIGIN)
    name, is_exact, version = exact.partition("==")
    if is_exact:
        return canonical_name(name), version, origin
    name, _, address = text.partition(_ADDRESS)
    if "/" in name or ":" in name:
        return name, address, "image"
    wheel = _WHEEL.search(address)
    version = unquote(wheel[1]) if wheel else address
    return canonical_name(name), version, address


def _driver_of(line: Mapping[str, Any]) -> str | None:
    """Return the version of the GPU's driver; None for the CPU, which doesn't use it."""
    if device_kind(line["device"]) == "cpu":
        return None
    machine = line["machine"]
    for gpu in machine.get("gpus") or []:
        if gpu.get("driver"):
            return str(gpu["driver"])
    driver: str | None = machine.get("gpu_driver")
    return driver
