"""The items of a run as a lock has them, from the lines of results.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_mlms.core.recorded import recorded_launch
from pytest_mlms.core.records import UNUSABLE
from pytest_mlms.core.text import redact
from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.lockfile.lock import LockedItem, LockedStack, short_digest
from pytest_mlms.keep.lockfile.software import software_of
from pytest_mlms.keep.lockfile.timing import timings_of
from pytest_mlms.keep.results.results_reader import ItemLines
from pytest_mlms.provide.stacks.exact import NOT_IN_AGENTS
from pytest_mlms.provide.stacks.exact_packages import image_of, parse_package
from pytest_mlms.provide.stacks.trust import EVERYTHING, TRUST_OPTION, Trust

_WRITTEN = ("PASSED", "INCONCLUSIVE", "XFAILED")
_TRUST = f"declare that in stacks.yaml, or trust the run by {TRUST_OPTION} RUN"

Line = Mapping[str, Any]


@dataclass(frozen=True)
class MeasuredItem:
    """An item of a run, as a lock would have it; ``item.stack`` is the stack's name."""

    verdict: str
    item: LockedItem
    software: LockedStack
    machine: str
    timings: Mapping[str, str]

    def is_written(self, force: bool) -> bool:
        """Return whether a lock may have the item; with ``force`` also if it FAILED."""
        if self.verdict == "FAILED":
            return force
        return self.verdict in _WRITTEN


@dataclass(frozen=True)
class RunItems:
    """The items of a run by node id: measured ones, and the reason why others have no measurements.

    ``upgrades`` is the number of upgrades, which have two stacks and are never locked.
    """

    measured: Mapping[str, MeasuredItem]
    unmeasured: Mapping[str, str]
    upgrades: int

    def written(self, force: bool = False) -> dict[str, MeasuredItem]:
        """Return the items that a lock is written from."""
        written = {}
        for nodeid, found in self.measured.items():
            if found.is_written(force):
                written[nodeid] = found
        return written

    def refused(self, force: bool = False) -> dict[str, str]:
        """Return the reason for each item that a lock isn't written from."""
        reasons = dict(self.unmeasured)
        for nodeid, found in self.measured.items():
            if not found.is_written(force):
                reasons[nodeid] = found.verdict
        return dict(sorted(reasons.items()))


def items_of_run(
    lines: Iterable[dict[str, Any]], folder: Path, trust: Trust = EVERYTHING
) -> RunItems:
    """Return the items of a run's lines.

    ``folder`` is that of the lock. Skipped items are left out. A baseline is installed as the lock
    says, so an item whose packages are from where ``trust`` doesn't take them is not measured.
    """
    last = ItemLines.of(lines).lines
    kinds = [line["kind"] for line in last.values()]
    measured = {}
    unmeasured = {}
    for nodeid, line in last.items():
        if line["kind"] == "upgrade" or line["verdict"] == "SKIPPED":
            continue
        software = software_of(line, folder)
        reason = _reason(line, software, trust)
        if reason or software is None:
            unmeasured[nodeid] = reason
            continue
        try:
            measured[nodeid] = _measured(line, software)
        except ValidationError as error:  # texts that no lock has, which only an edited line has
            first = error.errors(include_url=False, include_input=False)[0]
            unmeasured[nodeid] = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return RunItems(measured, unmeasured, kinds.count("upgrade"))


def _reason(line: Line, software: LockedStack | None, trust: Trust) -> str:
    """Return why an item has no measurements that a lock may have; "" where it has."""
    if line["verdict"] in UNUSABLE:
        return str(line["verdict"])
    if line.get("outcome") == "interrupted":
        return "interrupted"
    if software is None:
        return recorded_launch(line).lacking or "no packages in the results"
    distrust = _distrust(line, trust)
    return f"{distrust}; {_TRUST}" if distrust else ""


def _distrust(line: Line, trust: Trust) -> str:
    """Return which software of a line may not be installed again as it tells; "" for none."""
    lines = recorded_launch(line).exact
    image = image_of(lines)
    if image:
        return "" if trust.takes_image(image) else f"results have the image {image}"
    for package in filter(None, map(parse_package, lines)):
        is_installed = not package.is_developed and package.key not in NOT_IN_AGENTS
        if is_installed and package.address and not trust.takes_address(package):
            return f"results have {package.name} from {redact(package.address)}"
    return ""


def _measured(line: Line, software: LockedStack) -> MeasuredItem:
    return MeasuredItem(
        verdict=line["verdict"],
        item=_item(line),
        software=software,
        machine=machine_class(line["machine"]),
        timings=_timings(line),
    )


def _timings(line: Line) -> dict[str, str]:
    if line["kind"] != "performance":
        return {}
    estimates = line.get("estimates") or {}
    return dict(timings_of(estimates))


def _item(line: Line) -> LockedItem:
    dataset = line.get("dataset") or {}
    trace = line.get("trace") or {}
    return LockedItem(
        stack=line["stack"]["name"],
        manifest=line["manifest"]["name"],
        framework=line["framework"],
        device=line["device"],
        variant=line.get("variant") or "",
        model=_model(line),
        dataset=_short(dataset.get("sha256")),
        layers=_short(trace.get("layers_sha256")),
        definition=line.get("definition"),
        **_answers(line),
    )


def _model(line: Line) -> dict[str, str]:
    digests = {}
    for role, digest in sorted(line["model"]["sha256"].items()):
        digests[role] = short_digest(digest)
    return digests


def _answers(line: Line) -> dict[str, Any]:
    """Return the fields of an item of accuracy that are about its answers."""
    if line["kind"] != "accuracy":
        return {}
    record = line.get("predictions") or {}
    digest = _short(record.get("sha256"))
    if record.get("right") is not None:
        return {"predictions": digest, "right": record["right"], "inputs": record["inputs"]}
    estimates = line.get("estimates") or {}
    accuracy = dict(_figures(estimates))
    return {"predictions": digest, "accuracy": accuracy}


def _short(sha256: str | None) -> str | None:
    if sha256 is None:
        return None
    return short_digest(sha256)


def _figures(estimates: Mapping[str, Line]) -> Iterator[tuple[str, float]]:
    """Yield the quantities with four digits, which the last bits of scores rarely change."""
    for name, estimate in sorted(estimates.items()):
        value = estimate.get("value")
        if isinstance(value, (int, float)) and math.isfinite(value):
            rounded = f"{value:.4g}"
            yield name, float(rounded)
