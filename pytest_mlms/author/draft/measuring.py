"""Measure a drafted manifest on this machine: the range of its pixels, and its limits.

Pixels are what scores best, and limits what pytest measures twice.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pytest_mlms.author.doctor.examination import Examination, open_patient
from pytest_mlms.author.doctor.search import diagnose
from pytest_mlms.author.doctor.variants import step_text
from pytest_mlms.author.draft.parts import Draft
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.starts import module_command, without_own_settings
from pytest_mlms.core.units import format_quantity

_OF_PIXELS = ("color", "scale")
_PROCESSES = 3
_SECONDS = 0.2  # timed in each process
_TIMES = 2.0
"""The limit on a time, as a multiple of what was measured."""
_MEMORY_TIMES = 1.5
_NOISE_TIMES = 4.0
"""The room above a time that is left for each unit of noise, where that is large."""
_MOST_OF_ACCURACY = 2  # limits
_BINARY = 2  # classes
_SHOWN_LINES = 12  # of an error
_LEAST_DIFFERENCE = 1e-6
_ANY_DIFFERENCE = 1e30
_BY_CHANCE = {"top1": 0.0, "r2": 0.0, "ap": 0.0, "miou": 0.0}
"""The score of a model that knows nothing; of as many classes as are known, one of them."""
_DOUBT = (
    "{} {} is not shown to be better than chance ({}{}): the labels, their order or the "
    "pre-processing are probably wrong, or the inputs too few. Mend that before you trust a limit "
    "on accuracy; mlms doctor tries usual mistakes"
)
_OF_GUESSES = "at sizes that are guesses; measure it at yours"
_OF_A_PAST = (
    "both the positions of a call and those before it are guesses, a pair that nobody may have; "
    "measure it at yours"
)
_BELOW_CHANCE = (
    "{} {} is below chance ({}{}): the labels are in another order than the model's, or of other "
    "inputs; {}"
)
_ADVICE_ON_CLASSES = (
    "number the classes by the columns of its scores (scikit-learn: model.classes_), and "
    "name them in that order where they have names: --labels FILE"
)
_ADVICE_ON_NUMBERS = (
    "or in another unit or scale, or not of the first output that is as long as a label: give "
    "labels as the model gives its numbers, row by row; without an array 'label' in the data, no "
    "accuracy is measured"
)

Item = Mapping[str, Any]


@dataclass(frozen=True)
class _Time:
    """A median latency of both runs: its mean, and their difference as a share of it."""

    seconds: float
    noise: float

    @property
    def limit(self) -> float:
        return self.seconds * max(_TIMES, 1 + _NOISE_TIMES * self.noise)


def with_best_pixels(draft: Draft, examination: Examination, say: Callable[[str], None]) -> Draft:
    """Return a draft with the usual range and order of pixels that scores surely better, if any.

    A draft without pictures or labels stays as it is. Raises MlmsError where it does not run.
    """
    images = [part for part in draft.inputs if part.type == "image"]
    has_range = len(images) == 1 and images[0].element_type != "uint8"
    if not has_range or not examination.loaded.manifest.has_accuracy:
        return draft
    with open_patient(examination) as patient:
        diagnosis = diagnose(patient, lambda text: None, _OF_PIXELS)

    image = images[0]
    steps = list(image.steps)
    best = diagnosis.best
    tried = len(diagnosis.findings)
    quantity = diagnosis.quantity
    value = diagnosis.as_written if best is None else best.value
    shown = format_quantity(value, quantity.unit or "")
    reason = f"{quantity.name} {shown} of {diagnosis.inputs} inputs"
    if best is None:
        reason += f"; none of {tried} other ranges is surely better"
    else:
        reason = f"{best.variant.name}: {reason}, the best of {tried + 1}"
        (spec,) = (spec for spec in best.variant.inputs if spec.name == image.name)
        steps = [(step_text(step), "") for step in spec.steps]
    say(f"pixels: {reason}")

    places = [place for place, (step, _) in enumerate(steps) if step.startswith("normalize")]
    place = places[0] if places else len(steps) - 1
    steps[place] = (steps[place][0], reason)
    part = replace(image, steps=steps)
    return replace(draft, inputs=[part if other is image else other for other in draft.inputs])


def measurable(draft: Draft) -> Draft:
    """Return a draft as it is measured: several models agree with the first whatever they give."""
    if len(draft.models) < 2:
        return draft
    return replace(draft, thresholds=[(draft.agreement(_ANY_DIFFERENCE), "")])


def measure_twice(manifest: Path, options: Sequence[str]) -> list[list[Item]]:
    """Run pytest on a manifest two times; return the items of each run, as results.jsonl has them.

    The second run has the performance items only, whose figures differ from run to run. ``options``
    are further ones of pytest. Raises MlmsError where an item can't be measured.
    """
    return [_run(manifest, options), _run(manifest, [*options, "-ktest_performance"])]


def _run(manifest: Path, options: Sequence[str]) -> list[Item]:
    with tempfile.TemporaryDirectory(prefix="mlms-init-") as folder:
        command = [
            *module_command("pytest", with_folder=True),
            *(str(manifest), "-q", "-pno:cacheprovider"),
            *(f"-c{os.devnull}", f"--rootdir={Path.cwd()}"),  # not of the project's own tests
            *("-Wignore:no limit judges", f"--mlms-results={folder}/results"),
            *(f"--mlms-processes={_PROCESSES}", f"--mlms-duration={_SECONDS}", *options),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=without_own_settings()
        )
        path = Path(folder, "results", "latest", "results.jsonl")
        items = _items(path) if path.is_file() else []
    if not items:
        output = (done.stdout + done.stderr).replace(str(manifest), "the draft")
        end = "\n".join(output.splitlines()[-_SHOWN_LINES:])
        raise MlmsError(f"pytest could not run the draft:\n{end}")
    for item in items:
        if item["verdict"] in ("ERROR", "INVALID", "SKIPPED"):
            begin = "\n".join((item["message"] or "").splitlines()[:_SHOWN_LINES])
            raise MlmsError(f"the model can't be measured: {begin}")
    return items


def _items(path: Path) -> list[Item]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["type"] == "item"]


def with_limits(draft: Draft, runs: Sequence[Sequence[Item]]) -> Draft:
    """Return a draft with limits on what two runs of it measured.

    Raises MlmsError where the accuracy is surely below chance.
    """
    items = [item for run in runs for item in run]
    times = _times(items)
    thresholds = [
        *_accuracy(items, draft.classes),
        *_latency(times, draft),
        *_memory(items, "peak_memory"),
        *_memory(items, "device_memory"),
        *_agreement(draft, items),
    ]
    noise = max((time.noise for time in times.values()), default=0.0)
    doubt = _doubt(items, draft.classes)
    return replace(draft, thresholds=thresholds, measured=_how(items, noise), doubt=doubt)


def _doubt(items: Sequence[Item], classes: int | None) -> str:
    """Return that a model isn't better than chance; "" where each is, or has no accuracy.

    Raises MlmsError where it is surely worse, as a right model isn't, whatever its inputs.
    """
    one = f"one of {classes:,} classes" if classes else ""
    for item in items:
        for name, known in _BY_CHANCE.items():
            estimate = item["estimates"].get(name)
            if item["kind"] != "accuracy" or estimate is None or estimate["lacking"]:
                continue
            chance = 1 / classes if name == "top1" and classes else known
            found = estimate["low"] if name == "top1" else estimate["value"]
            shares = [format_quantity(share, "fraction") for share in (estimate["value"], chance)]
            words = (name, *shares, f", {one}" if name == "top1" and one else "")
            if estimate["high"] is not None and estimate["high"] < chance:
                advice = _ADVICE_ON_NUMBERS if name == "r2" else _ADVICE_ON_CLASSES
                raise MlmsError(_BELOW_CHANCE.format(*words, advice))
            if found <= chance:
                return _DOUBT.format(*words)
    return ""


def _how(items: Sequence[Item], noise: float) -> str:
    """Return how the limits were measured, and on what."""
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    machine = items[0]["machine"]
    cores = machine["cores"]["logical"]
    stacks = dict.fromkeys(f"{item['framework']} {_version(item)}" for item in items)
    return (
        f"Measured by mlms init at {when} on {machine['cpu'].get('model') or 'this machine'}, "
        f"{cores} cores, with {', '.join(stacks)}: an A/A run, the same model twice, with "
        f"{_PROCESSES} fresh processes of {_SECONDS} s each time. Both times, median latencies "
        f"differed by at most {noise:.1%}: the noise floor of such a run here. Tighten the limits "
        f"as you trust them; an upgrade (--mlms-against) finds smaller changes of speed than they "
        f"do."
    )


def _version(item: Item) -> str:
    return str(item["versions"].get(item["framework"], ""))


def _accuracy(items: Iterable[Item], classes: int | None) -> list[tuple[str, str]]:
    """Return limits at the worse end of the interval of each quantity, the lowest of all models.

    They are on the first quantities of the task, and for two ``classes`` on the area under the ROC
    curve, which judges scores at any threshold.
    """
    bounds: dict[str, float] = {}
    measured: dict[str, list[float]] = {}
    for item in items:
        if item["kind"] != "accuracy":
            continue
        for name, estimate in item["estimates"].items():
            quantity = QUANTITIES[name]
            if estimate["lacking"] or not quantity.limit_key:
                continue
            is_min = quantity.bound == "min"
            bound = estimate["low"] if is_min else estimate["high"]
            if not bound:
                continue  # a limit of 0 says nothing, or leaves no room for rounding
            worst = min if is_min else max
            bounds[name] = worst(bounds.get(name, bound), bound)
            measured.setdefault(name, []).append(estimate["value"])
    lines = []
    names = list(bounds)
    if classes == _BINARY and "auc" in bounds:
        names.sort(key=lambda name: name not in ("top1", "auc"))
    for name in names[:_MOST_OF_ACCURACY]:
        bound = bounds[name]
        quantity = QUANTITIES[name]
        value = _rounded(bound, down=quantity.bound == "min")
        line = f"{quantity.limit_key}: {{{quantity.bound}: {_with_unit(value, quantity.unit)}}}"
        found = format_quantity(min(measured[name]), quantity.unit)
        lines.append((line, f"measured {found}; the limit is the end of its 95 % interval"))
    return lines


def _with_unit(value: float, unit: str) -> str:
    if unit in ("", "fraction"):
        return f"{value:g}"
    return format_quantity(value, unit)


def _rounded(value: float, *, down: bool) -> float:
    """Return a number with three digits, rounded down or up."""
    if value == 0 or not math.isfinite(value):
        return value
    scale = 10.0 ** (2 - math.floor(math.log10(abs(value))))
    rounding = math.floor if down else math.ceil
    return float(f"{rounding(value * scale) / scale:.6g}")


def _times(items: Iterable[Item]) -> dict[tuple[str, int], _Time]:
    """Return the median latency by model and batch size."""
    values: dict[tuple[str, int], list[float]] = {}
    for item in items:
        if item["kind"] == "performance":
            estimate = item["estimates"].get("latency_p50")
            if estimate and not estimate["lacking"]:
                variant = item.get("variant")
                model = f"{item['framework']}-{variant}" if variant else item["framework"]
                key = (model, item["batch_size"])
                values.setdefault(key, []).append(estimate["value"])
    found = {}
    for key, seconds in values.items():
        mean = sum(seconds) / len(seconds)
        found[key] = _Time(mean, (max(seconds) - min(seconds)) / mean)
    return found


def _latency(times: Mapping[tuple[str, int], _Time], draft: Draft) -> list[tuple[str, str]]:
    """Return limits on latency, which say that sizes are guesses where some are."""
    if not times:
        return []
    several = len(draft.models) > 1
    problem = _OF_A_PAST if draft.guesses_a_past else _OF_GUESSES
    comment = f"{problem}: mlms init … {draft.guesses}" if draft.guesses else ""
    entries = []
    for (framework, size), time in times.items():
        limit = f"max: {_seconds(time.limit)}, batch_sizes: [{size}]"
        if several:
            limit += f", frameworks: [{framework}]"
        entries.append((f"  - {{{limit}}}", f"measured {_seconds(time.seconds)}"))
    return [("latency_p50:", comment), *entries]


def _seconds(seconds: float) -> str:
    return format_quantity(seconds, "s")


def _memory(items: Sequence[Item], name: str) -> list[tuple[str, str]]:
    peaks = []
    for item in items:
        estimate = item["estimates"].get(name) if item["kind"] == "performance" else None
        if estimate and not estimate["lacking"]:
            peaks.append(estimate["high"] or estimate["value"])  # a single process has no interval
    if not peaks:
        return []
    mebibytes = math.ceil(_MEMORY_TIMES * max(peaks) / 2**20)
    measured = format_quantity(max(peaks), "B")
    return [(f"{name}: {{max: {mebibytes} MiB}}", f"measured {measured} at most")]


def _agreement(draft: Draft, items: Iterable[Item]) -> list[tuple[str, str]]:
    """Return the agreement of several models: twice the largest difference that was measured.

    Raises MlmsError where outputs have values that can't be compared.
    """
    variants = {}
    for item in items:
        if item["kind"] == "agreement":
            difference = item["estimates"]["difference_max"]["value"]
            variants[math.inf if difference is None else difference] = item.get("variant")
    if not variants or len(draft.models) < 2:
        return []
    largest = max(variants)
    if not math.isfinite(largest):
        problem = "the models give NaN, infinity or other texts for other inputs"
        raise MlmsError(f"{problem}; write a manifest for each of them")
    atol = _rounded(max(2 * largest, _LEAST_DIFFERENCE), down=False)
    comment = f"outputs differed by {largest:.2g} at most"
    if largest > draft.rounding:
        advice = "see whether the models are one network"
        if variants[largest]:
            advice = "variants of other precision do; see by a dataset with labels what it costs"
        comment += f", which is more than rounding: {advice}"
    return [(draft.agreement(atol), comment)]
