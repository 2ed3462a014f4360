"""The items of a run as a lock has them, from the lines of results.jsonl, and its renewal by them.

Software is without this plugin and paths of a host. Other lines of a lock stay, and so do timings
that changed by noise."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pydantic import ValidationError

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.recorded import recorded_launch, without_devices
from pytest_mlms.core.records import UNUSABLE
from pytest_mlms.core.text import redact
from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.lockfile.lock import (
    Lock,
    LockedItem,
    LockedStack,
    NamedSoftware,
    Timings,
    is_noise,
    is_sharper,
    keys_of,
    short_digest,
    stack_name,
    timings_of,
)
from pytest_mlms.keep.results.results_reader import ItemLines
from pytest_mlms.provide.stacks.exact import NOT_IN_AGENTS, ExactSoftware, is_framework
from pytest_mlms.provide.stacks.exact_packages import ExactPackage, image_of, parse_package
from pytest_mlms.provide.stacks.programs import programs_of
from pytest_mlms.provide.stacks.trust import EVERYTHING, TRUST_OPTION, Trust, harmless_variables

_FILE = "file:"
_FOLDER = "editable folder"


def software_of(line: Mapping[str, Any], folder: Path) -> LockedStack | None:
    """Return the software of an item's line; None where it doesn't tell its packages.

    What a person develops is left out, unless it is the framework. Of the caller's variables it has
    those that mean the same on any host, without the choice of a device. Files that packages were
    installed from are told relative to ``folder``, that of the lock; of those elsewhere the name.
    """
    launch = recorded_launch(line)
    packages = launch.exact
    python = line.get("python")
    if not packages or not (python or programs_of(packages)):
        return None
    kept = set(_portable_lines(packages, line["framework"], folder))
    in_order = sorted(kept, key=str.lower)
    harmless = without_devices(harmless_variables(launch.inherited or {}))
    texts = [f"{name}={value}" for name, value in sorted(harmless.items())]
    return LockedStack(python=python or "", packages=tuple(in_order), variables=tuple(texts))


def exact_software(item: LockedItem, software: LockedStack, folder: Path) -> ExactSoftware:
    """Return the software of an item of the lock in ``folder``, as it is installed again."""
    packages = [_located(line, folder) for line in software.packages]
    return ExactSoftware(item.stack, item.framework, software.python, tuple(packages))


def _portable_lines(packages: Iterable[str], framework: str, folder: Path) -> Iterator[str]:
    """Yield the lines of the packages that a lock has, as any host reads them."""
    for line in packages:
        package = parse_package(line)
        if package is None:
            yield line
        elif package.is_developed:
            if is_framework(package, framework):
                yield f"{package.name}=={package.version} # {_FOLDER}"
        elif package.file is not None:
            yield _line_of_file(package, package.file, folder)
        elif package.key not in NOT_IN_AGENTS:
            yield line


def _line_of_file(package: ExactPackage, file: Path, folder: Path) -> str:
    """Return the line of a package that a local wheel or archive has."""
    place = file.name
    if file.is_relative_to(folder):
        place = file.relative_to(folder).as_posix()
    origin = f"{_FILE}{place}"
    version = package.version or _version_of_wheel(file.name)
    if not version:
        return f"{package.name} @ {origin}"
    return f"{package.name}=={version} # {origin}"


def _version_of_wheel(name: str) -> str:
    """Return the version in a wheel's name; "" for another file."""
    try:
        _, version, _, _ = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return ""
    return str(version)


def _located(line: str, folder: Path) -> str:
    """Return the line with the absolute path of the file that the package was installed from."""
    package = parse_package(line)
    if package is None or not package.origin.startswith(_FILE):
        return line
    place = package.origin.removeprefix(_FILE)
    address = (folder.absolute() / place).as_uri()
    return f"{package.name} @ {address}"


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


def renewed(old: Lock, measured: Mapping[str, MeasuredItem], kept: Collection[str]) -> Lock:
    """Return the lock with the items of a run, and with its own lines of ``kept``."""
    items: dict[str, LockedItem] = {}
    used: dict[str, NamedSoftware] = {}
    for nodeid in kept:
        item = old.items[nodeid]
        items[nodeid] = item
        used[nodeid] = _software_in(old, item)
    for nodeid, found in measured.items():
        item = found.item
        items[nodeid] = item
        used[nodeid] = NamedSoftware(item.stack, found.software)
    keys = keys_of(used.values(), old.stacks)
    stacks = {key: named.software for named, key in keys.items()}
    for nodeid, named in used.items():
        key = keys[named]
        items[nodeid] = items[nodeid].model_copy(update={"stack": key})
    timings = _kept_timings(old, items)
    _add_timings(timings, measured)
    try:
        return Lock(stacks=stacks, items=items, timings=timings)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MlmsError(f"the run has what no lock may have: {place}: {first['msg']}") from None


def _software_in(lock: Lock, item: LockedItem) -> NamedSoftware:
    name = stack_name(item.stack)
    return NamedSoftware(name, lock.stacks[item.stack])


def _kept_timings(old: Lock, items: Mapping[str, LockedItem]) -> Timings:
    """Return the old timings of all machines, of items that measure the same of the same model."""
    timings: Timings = {}
    for machine, by_item in old.timings.items():
        for nodeid, by_quantity in by_item.items():
            before = old.items.get(nodeid)  # none where another branch removed the item
            now = items.get(nodeid)
            if now is None or before is None or now.model != before.model:
                continue
            if _measures_another(now, before):
                continue
            kept = timings.setdefault(machine, {})
            kept[nodeid] = by_quantity
    return timings


def _measures_another(now: LockedItem, before: LockedItem) -> bool:
    """Return whether an item is known to measure something else than before."""
    return None not in (now.definition, before.definition) and now.definition != before.definition


def _add_timings(timings: Timings, measured: Mapping[str, MeasuredItem]) -> None:
    """Add the timings of a run to those of its class of machines."""
    for nodeid, found in measured.items():
        if not found.timings:
            continue
        of_machine = timings.setdefault(found.machine, {})
        before = of_machine.get(nodeid, {})
        of_machine[nodeid] = _renewed_timings(before, found.timings)


def _renewed_timings(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the new timings, but the old one of each that is no news and not much sharper."""
    timings = dict(now)
    for quantity, earlier in before.items():
        later = now.get(quantity)
        if later is None:
            continue
        if is_noise(earlier, later) and not is_sharper(earlier, later):
            timings[quantity] = earlier
    return timings
