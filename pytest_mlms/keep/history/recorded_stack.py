"""Stacks as results record them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytest_mlms.core.recorded import recorded_launch
from pytest_mlms.provide.stacks.exact_packages import differing_packages, parse_package
from pytest_mlms.provide.stacks.recreated import NOT_IN_AGENTS

_ENVIRONMENT = ("env", "env_passthrough", "libraries", "options", "variant")
"""The declared keys that are no packages and change what a stack does."""


@dataclass(frozen=True)
class RecordedStack:
    """A stack as an item's line of results.jsonl has it.

    Attributes:
        name: Its name.
        framework: The framework that the item ran.
        python: The exact version of Python.
        packages: The exact packages, a line each, without those that no agent imports.
        missing: The reason why there are no packages, or empty.
        declared: The keys of stacks.yaml that declare it, as far as ``trusted_keys`` takes them.
        threads: The number of threads that was asked for; None for the framework's own choice.
        cores: The cores that its agents were held to; empty for all.
        driver: The version of the GPU's driver; empty for an item on the CPU.
        inherited: The variables by which its caller changed what was measured; None if unknown.
    """

    name: str
    framework: str
    python: str
    packages: tuple[str, ...]
    missing: str
    declared: Mapping[str, Any]
    threads: int | None
    cores: tuple[int, ...]
    driver: str
    inherited: Mapping[str, str] | None = None

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> RecordedStack:
        """Return the stack of an item's line."""
        stack = line["stack"]
        launch = recorded_launch(line)
        missing = launch.lacking or "the run doesn't tell them"
        return cls(
            name=stack["name"],
            framework=line["framework"],
            python=line.get("python") or "",
            packages=tuple(_of_agents(launch.exact)),
            missing="" if launch.exact else missing,
            declared=_declared(line),
            threads=stack.get("threads"),
            cores=tuple(stack.get("cores") or ()),
            driver=_driver_of(line),
            inherited=launch.inherited,
        )

    @cached_property
    def identity(self) -> str:
        """A text that two stacks share where nothing differs that can change a measurement."""
        environment = {key: self.declared.get(key) for key in _ENVIRONMENT}
        software = (self.framework, self.python, self.packages, self.driver)
        parts = (software, environment, self.threads, self.cores, self.inherited)
        return json.dumps(parts, sort_keys=True)

    @property
    def developed(self) -> list[str]:
        """The names of packages that were installed from a folder, whose code may be any."""
        parsed = map(parse_package, self.packages)
        return [package.name for package in parsed if package and package.is_developed]

    def differences(self, after: RecordedStack) -> list[str]:
        """Return what differs in ``after``, a text each, as in "numpy 2.3.0 → 2.4.6"."""
        found = []
        if self.python != after.python:
            found.append(f"Python {self.python} → {after.python}")
        if self.driver != after.driver:
            old = self.driver or "none"
            new = after.driver or "none"
            found.append(f"driver {old} → {new}")
        found += map(str, differing_packages(self.packages, after.packages))
        old_variables, new_variables = self.inherited or {}, after.inherited or {}
        for name in sorted(old_variables.keys() | new_variables.keys()):
            values = [variables.get(name, "none") for variables in (old_variables, new_variables)]
            if values[0] != values[1]:
                found.append(f"${name} {values[0]} → {values[1]}")
        for key in _ENVIRONMENT:
            if self.declared.get(key) != after.declared.get(key):
                found.append(f"{key} of the stack")
        if self.threads != after.threads or self.cores != after.cores:
            found.append("threads or cores of the stack")
        return found


def _driver_of(line: Mapping[str, Any]) -> str:
    """Return the version of the GPU's driver; "" for an item on the CPU."""
    device = str(line["device"])
    if device.startswith("cpu"):
        return ""
    driver = line["machine"].get("gpu_driver")
    return str(driver or "unknown")


def _of_agents(packages: Iterable[str]) -> Iterator[str]:
    """Yield the packages without this plugin and installers."""
    for line in packages:
        package = parse_package(line)
        if package is None or package.key not in NOT_IN_AGENTS:
            yield line


def _declared(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that declare a stack which runs the model of a line and no other variant."""
    variant = {"variant": line["variant"]} if line.get("variant") else {}
    return {**(line["stack"].get("declared") or {}), **variant}
