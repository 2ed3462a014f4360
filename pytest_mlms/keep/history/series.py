"""Series: points of one quantity of one case, which software versions don't divide."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.keep.history.machine_class import device_kind, machine_class
from pytest_mlms.keep.results.line import OF_LIMITS, load_of
from pytest_mlms.manifest.scenarios import label_of

FIRST_METHOD = 1
"""The version of the method of lines that don't tell it."""

_WITHOUT_POINTS = ("upgrade", "trace", "soak")
"""Kinds whose estimates are no points.

The values of an upgrade are of interleaved runs, in which the other side warms and disturbs the
caches: they are good for ratios, and no other run has their like. Those of a soak are changes that
time made, about nothing.
"""

_NOTHING_MEASURED = ("ERROR", "SKIPPED")
"""Verdicts of items that give no points. INVALID items give points, which detection leaves out."""


_MEDIAN = 50

_KEY_DIGITS = 32
"""Digits of a key, 128 bits: a large run looks for 100,000 of them in an index."""


class Common:
    """The parts of an item's series but the quantity, and what follows from them.

    It is made once an item, not once a point: a large run has 100,000 points.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = parts
        self.text = json.dumps(parts, sort_keys=True)[:-1]
        self._digest = hashlib.sha256(self.text.encode())

    def key(self, quantity: str) -> str:
        """Return the digest of the parts with a quantity."""
        digest = self._digest.copy()
        digest.update(_end_of(quantity).encode())
        return digest.hexdigest()[:_KEY_DIGITS]

    @cached_property
    def case(self) -> str:
        """The words by which expressions select: the name of the model, the kind and the case."""
        return f"{self.parts['manifest']} {self.parts['kind']} {case_label(self.parts)}"


class Series(NamedTuple):
    """Common facts of all points of a series; ``key`` is the digest of its parts."""

    common: Common
    quantity: str
    unit: str
    better: str
    key: str

    @property
    def parts(self) -> dict[str, Any]:
        """The names and values that the key is made of.

        Software versions are no parts, as they are what varies.
        """
        return {**self.common.parts, "quantity": self.quantity}

    @property
    def text(self) -> str:
        """The parts as JSON, from which the key is made."""
        return self.common.text + _end_of(self.quantity)

    @property
    def name(self) -> str:
        """Words that expressions select by: model, kind, case, quantity, and class of machine."""
        return f"{self.common.case} {self.quantity} {self.common.parts['machine']}"


class Point(NamedTuple):
    """A value of a series with its interval; None where there is no interval."""

    series: Series
    value: float
    low: float | None
    high: float | None
    replicates: int | None


@lru_cache
def _end_of(quantity: str) -> str:
    """Return the end of the JSON of a series' parts."""
    return f', "quantity": {json.dumps(quantity)}}}'


def points_of(line: Mapping[str, Any]) -> Iterator[Point]:
    """Yield a point for each quantity of an item's line of results.jsonl.

    They are its estimates, except those of upgrades and traces, and the quantities of users' own
    tests. An item that ended with an error gives none, as nobody knows how far it came.
    """
    if line["verdict"] in _NOTHING_MEASURED:
        return
    common = Common(parts_of(line))
    if line["kind"] not in _WITHOUT_POINTS:
        yield from _of_estimates(line, common)
    own = line.get("quantities") or {}
    for name, quantity in own.items():
        if _is_number(quantity["value"]):
            test = _test_of(line, with_file=True)
            meaning = {"unit": quantity["unit"], "better": quantity["better"]}
            of_test = Common({**common.parts, "test": test, **meaning})
            yield _point(of_test, name, quantity, quantity["better"])


def case_label(parts: Mapping[str, Any]) -> str:
    """Return what names the case of a series, much like pytest's ids: onnxruntime-cpu-b8-offline.

    A test of one's own is named too.
    """
    stack = parts["stack"]
    label = parts["framework"] if stack == "here" else stack
    if parts.get("variant") and not str(label).endswith(parts["variant"]):
        label = f"{label}-{parts['variant']}"
    words = [label, parts["device"]]
    if parts["scenario"]:
        words += [f"b{parts['batch_size']}", label_of(_scenario_of(parts), parts.get("load") or {})]
    if parts.get("shape"):
        words.append(parts["shape"])
    if parts.get("caches"):
        words.append(parts["caches"])
    text = "-".join(words)
    if "::" in parts["test"]:
        text = f"{parts['test'].rpartition('::')[2]}[{text}]"
    return text


def _of_estimates(line: Mapping[str, Any], common: Common) -> Iterator[Point]:
    """Yield the estimates, without percentiles of too few calls, which are but their slowest."""
    estimates = line.get("estimates") or {}
    for name, estimate in estimates.items():
        known = QUANTITIES.get(name)
        if known is None or not _is_number(estimate["value"]):
            continue
        is_tail = (known.percent or 0) > _MEDIAN
        if not (is_tail and estimate.get("lacking")):
            parts = common
            if estimate.get("counter"):  # the values of another one aren't like these
                parts = Common({**common.parts, "counter": estimate["counter"]})
            if name == OF_LIMITS:
                parts = Common({**common.parts, "load": line.get("load")})
            yield _point(parts, name, estimate, known.better)


def _point(common: Common, quantity: str, estimate: Mapping[str, Any], better: str) -> Point:
    """Return the point of an estimate; one that lacks replicates has no interval."""
    series = Series(common, quantity, estimate["unit"], better, common.key(quantity))
    low = estimate.get("low")
    high = estimate.get("high")
    if estimate.get("lacking") or not _is_number(low) or not _is_number(high):
        low = high = None
    return Point(series, estimate["value"], low, high, estimate.get("replicates"))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def parts_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of the series of an item's line, but for the quantity."""
    dataset = line.get("dataset") or {}
    stack = line["stack"]
    declared = stack.get("declared") or {}
    further = {
        name: line[name] for name in ("variant", "shape", "definition", "caches") if line.get(name)
    }
    kinds = line["machine"].get("core_kinds")
    held = {*(stack["cores"] or line["machine"].get("affinity") or ())}
    if kinds:  # fast and slow ones
        further["core_kinds"] = {kind: len(held & {*cores}) for kind, cores in kinds.items()}
    if line.get("load"):
        further["load"] = load_of(line["load"])
    return {
        **further,  # keys of lines without these stay as they were
        "manifest": line["manifest"]["name"],
        "test": _test_of(line),
        "kind": line["kind"],
        "model": line["model"]["sha256"],
        "dataset": dataset.get("sha256"),
        "seed": None if dataset else line["seed"],  # it makes the inputs where there are no others
        "reference": _reference_of(line),
        "framework": line["framework"],
        "stack": stack["name"],
        "env": declared.get("env") or {},
        "device": device_kind(line["device"]),
        "machine": machine_class(line["machine"], line["device"]),
        "batch_size": line["batch_size"],
        "scenario": _scenario_of(line),
        "threads": stack["threads"],
        "cores": len(stack["cores"]),  # which of them may differ from run to run
        "options": line["options"],
        "method": line.get("method", FIRST_METHOD),
        "control": bool(line.get("control")),
    }


def _scenario_of(fields: Mapping[str, Any]) -> Any:
    """Return the scenario without the keys of its load, which are a part of their own."""
    scenario = fields["scenario"]
    return scenario.partition("-")[0] if fields.get("load") and scenario else scenario


def _reference_of(line: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the outputs are compared with: its stack and model, not its versions."""
    reference = line.get("reference")
    if not reference:
        return None
    return {name: reference.get(name) for name in ("stack", "framework", "device", "sha256")}


def _test_of(line: Mapping[str, Any], with_file: bool = False) -> str:
    """Return the function that measured, with its file where that is a user's.

    Without the file, a manifest that is moved keeps its series.
    """
    nodeid: str = line["nodeid"]
    test, _, _ = nodeid.partition("[")
    path, _, function = test.partition("::")
    if with_file or not path.endswith((".yaml", ".yml")):
        return test
    return function
