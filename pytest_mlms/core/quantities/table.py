"""The rows of all quantities, by name; docs/quantities.md and docs/tasks.md say more of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pytest_mlms.core.quantities.quantity import (
    Column,
    ProcessEstimator,
    ProcessValues,
    Quantity,
    Samples,
    UpgradeRule,
    percentile,
)
from pytest_mlms.core.records import Kind


def accuracy_quantity(
    name: str,
    description: str,
    column: Column | None = None,
    *,
    unit: str = "fraction",
    better: Literal["lower", "higher"] = "higher",
    tolerance: float = 0.01,
    asked: bool = False,
) -> Quantity:
    """Return a quantity of accuracy, which a manifest limits under its name.

    ``tolerance`` is the tolerance of an upgrade, and ``asked`` whether it is only compared where a
    manifest names it, as in ``UpgradeRule``; the other arguments are as in ``Quantity``.
    """
    rule = UpgradeRule(tolerance=tolerance, samples="inputs", asked=asked)
    return Quantity(name, unit, better, "accuracy", description, name, None, rule, column)


_INTERVAL = " (interval)"
_MAP, _RECALL = "COCO's mean average precision of", "COCO's mean recall of"
_FOUND = "with 100 detections per category and image"
_SSIM = "mean structural similarity of an input, with a"

# fmt: off
_ACCURACY = {
    "accuracy": [
        ("top1", f"top-1{_INTERVAL}", "share of inputs whose label is the best class"),
        ("top5", f"top-5{_INTERVAL}", "share of inputs whose label is among the five best classes"),
        ("f1_macro", "",
         "mean F1 score of all classes that occur as a label or as a best class"),
        ("precision", "",
         "precision of class 1 if there are two classes, otherwise the mean over classes"),
        ("recall", "",
         "recall of class 1 if there are two classes, otherwise the mean over classes"),
        ("auc", "",
         "area under the ROC curve of class 1 of two, or the mean of each class against the rest"),
        ("average_precision", "",
         "average precision of class 1 of two, or the mean of each class against the rest"),
        ("ece", "", "expected calibration error, over 15 bins of the best class's probability"),
    ],
    "accuracy of texts": [
        ("wer", f"WER{_INTERVAL}", "word errors in all inputs, as a share of the labels' words"),
        ("cer", f"CER{_INTERVAL}",
         "character errors in all inputs, as a share of the labels' characters"),
        ("exact_match", "exact match",
         "share of inputs whose text equals the label, or one of its answers"),
        ("answer_f1", f"answer F1{_INTERVAL}", "mean F1 score of the words of an answer"),
        ("bleu", f"BLEU{_INTERVAL}", "BLEU of all inputs, 0 to 100 %"),
        ("chrf", f"chrF{_INTERVAL}", "chrF of all inputs, 0 to 100 %"),
        ("rouge1", "ROUGE-1", "mean ROUGE-1 F1 score of an input"),
        ("rouge2", "ROUGE-2", "mean ROUGE-2 F1 score of an input"),
        ("rouge_l", f"ROUGE-L{_INTERVAL}", "mean ROUGE-L F1 score of an input"),
        ("same_tokens", f"same tokens{_INTERVAL}",
         "tokens that equal the labels', as a share of the labels' tokens"),
        ("tokens_before_divergence", "before divergence",
         "tokens before the first that differs, as a share of the labels' tokens"),
    ],
    "accuracy of boxes": [
        ("ap", f"AP{_INTERVAL}", f"{_MAP} boxes, over IoU thresholds of 0.5 to 0.95"),
        ("ap50", "AP50", f"{_MAP} boxes at an IoU of 0.5"),
        ("ap75", "AP75", f"{_MAP} boxes at an IoU of 0.75"),
        ("ar100", "AR100", f"{_RECALL} boxes, {_FOUND}"),
    ],
    "accuracy of masks": [
        ("mask_ap", f"AP{_INTERVAL}", f"{_MAP} masks, over IoU thresholds of 0.5 to 0.95"),
        ("mask_ap50", "AP50", f"{_MAP} masks at an IoU of 0.5"),
        ("mask_ap75", "AP75", f"{_MAP} masks at an IoU of 0.75"),
        ("mask_ar100", "AR100", f"{_RECALL} masks, {_FOUND}"),
    ],
    "accuracy of pixels": [
        ("miou", f"mIoU{_INTERVAL}",
         "mean intersection over union of the classes, over the pixels of all inputs"),
        ("pixel_accuracy", "pixels", "share of the pixels whose class is right"),
        ("dice", "Dice", "mean Dice coefficient of the classes, over the pixels of all inputs"),
    ],
    "accuracy of pictures": [
        ("psnr", f"PSNR{_INTERVAL}", "mean peak signal-to-noise ratio of an input"),
        ("ssim", "SSIM", f"{_SSIM} Gaussian window"),
        ("ssim_uniform", "SSIM, uniform", f"{_SSIM} uniform window of 7 pixels"),
    ],
    "accuracy of numbers": [
        ("mae", f"MAE{_INTERVAL}", "mean absolute error of the values, in the labels' unit"),
        ("rmse", "RMSE", "root mean square error of the values, in the labels' unit"),
        ("r2", "R²", "explained share of the labels' variance, pooled over an output's values"),
        ("cosine", "cosine", "mean cosine similarity between an output and its label"),
    ],
}
# fmt: on
"""Title of a table -> name, title of a column, and description of each quantity there."""

_ERRORS = {"wer", "cer", "mae", "rmse", "ece"}
_UNITS = {"psnr": "dB", "mae": "", "rmse": ""}
_ASKED = {"precision", "recall", "auc", "average_precision", "ece"}
"""Compared in upgrades where a manifest names them: each more is a chance to be REGRESSED."""


def _accuracy(table: str, name: str, title: str, description: str) -> Quantity:
    form: Literal["value", "interval"] = "interval" if title.endswith(_INTERVAL) else "value"
    return accuracy_quantity(
        name,
        description,
        Column(table, title, form) if title else None,
        unit=_UNITS.get(name, "fraction"),
        better="lower" if name in _ERRORS else "higher",
        asked=name in _ASKED,
    )


ACCURACY = [_accuracy(table, *row) for table, rows in _ACCURACY.items() for row in rows]
"""Quantities that tasks compute from outputs and labels, in the order of tables."""

_CALL_NOISE = 0.6e-6
"""Seconds that the fixed costs of a call differ by; docs/methodology.md has the reason."""

# fmt: off
_UPGRADE = [
    ("latency", "s",
     UpgradeRule(0.03, least_change=_CALL_NOISE, key="tolerance", estimate="latency_p50"),
     "median latency of a turn, by the clock that is least sensitive to other programs"),
    ("cpu_time", "s", UpgradeRule(0.03), "CPU time that the process takes for a call"),
    ("wall_time", "s", UpgradeRule(0.10), "wall time of a call"),
    ("group_latency", "s", UpgradeRule(0.03, least_change=_CALL_NOISE, samples="groups"),
     "if inputs have several shapes, latency of the group of inputs that got worst"),
    ("slow_inputs", "s", UpgradeRule(0.50, samples="groups"),
     ("latency of inputs that looked slower than the others, timed again in the rounds that "
      "follow")),
    ("stalls", "fraction", UpgradeRule(0.50, samples="calls"),
     "share of calls that take at least three times the median; neighbours count once"),
    ("idle_cpu", "s", UpgradeRule(0.50, base=0.020),
     "CPU time that the idle process takes in a second"),
    ("warm_up_time", "s", UpgradeRule(0.20, base=0.050),
     ("time of the calls after a process's first one and before the timed ones, of which both "
      "sides make equally many")),
    ("late_latency", "s", UpgradeRule(0.10),
     ("latency after some thousand calls, if it is a gate or looks slower in the first round")),
]
# fmt: on

UPGRADE = [
    Quantity(name, unit, "lower", "upgrade", description, upgrade=rule)
    for name, unit, rule, description in _UPGRADE
]
"""Quantities that only the turns of an upgrade measure."""

_MEMORY_NOISE = 1 << 20
"""Bytes of memory that don't matter to users, however small a model is."""

_DEVICE_MEMORY_STEP = 20 << 20
"""Bytes by which PyTorch's pool on a GPU grows where a tensor needs one of them."""


def _device_counters(process: ProcessValues) -> Mapping[str, int]:
    return process.device_memory.counters if process.device_memory else {}


def _missing_device_memory(process: ProcessValues) -> str:
    found = process.device_memory
    if found is None or not found.counters:
        return found.missing if found and found.missing else "it was not measured"
    return ""


def _missing_peak(process: ProcessValues) -> str:
    if process.peak_is_since_load:
        return ""
    return "this kernel can't reset the peak, so it may be that of the import"


def _missing_device_time(process: ProcessValues) -> str:
    if process.device_time is None:
        return "the predictor doesn't tell the time on the device"
    return ""


def _missing_growth(process: ProcessValues) -> str:
    if math.isnan(process.memory_growth):
        return "it is not measured under load; see test_soak (--mlms-soak)"
    return ""


def _missing_tokens(process: ProcessValues) -> str:
    return "" if process.tokens else "nothing is generated"


def _missing_gaps(process: ProcessValues) -> str:
    if process.tokens is None or len(process.tokens.gaps):
        return _missing_tokens(process)
    return "no answer has a second token"


def _missing_late_gaps(process: ProcessValues) -> str:
    from pytest_mlms.core.statistics import samples_for_percentile  # collection imports no numpy

    needed = samples_for_percentile(99)
    if process.tokens is None or len(process.tokens.gaps) >= needed:
        return _missing_tokens(process)
    found = len(process.tokens.gaps)
    return f"needs {needed} gaps between tokens in a process, had {found}: raise --mlms-budget"


_ESTIMATORS = {
    "latency_mean": ProcessEstimator(lambda process: process.mean_latency, of_calls=True),
    "latency_p50": percentile(50),
    "latency_p90": percentile(90),
    "latency_p95": percentile(95),
    "latency_p99": percentile(99),
    "throughput": ProcessEstimator(
        lambda process: process.seconds_per_input, is_rate=True, of_calls=True
    ),
    "device_time": ProcessEstimator(
        lambda process: process.device_time.seconds if process.device_time else math.nan,
        missing=_missing_device_time,
        counter=lambda process: process.device_time.counter if process.device_time else "",
    ),
    "start_time": ProcessEstimator(lambda process: process.time_to_answer),
    "load_time": ProcessEstimator(lambda process: process.load_seconds),
    "first_inference": ProcessEstimator(lambda process: process.first_seconds),
    "peak_memory": ProcessEstimator(
        lambda process: float(process.peak_bytes), missing=_missing_peak
    ),
    "device_memory": ProcessEstimator(
        lambda process: float(next(iter(_device_counters(process).values()), math.nan)),
        missing=_missing_device_memory,
        counter=lambda process: next(iter(_device_counters(process)), ""),
    ),
    "import_memory": ProcessEstimator(
        lambda process: process.import_bytes,
        missing=lambda process: "" if process.import_bytes >= 0 else "it was not measured",
    ),
    "memory_growth": ProcessEstimator(
        lambda process: process.memory_growth, missing=_missing_growth
    ),
    "energy_per_input": ProcessEstimator(
        lambda process: process.joules_per_input, missing=lambda process: process.energy_missing
    ),
    "ttft": ProcessEstimator(
        lambda process: process.tokens.usual_first if process.tokens else math.nan,
        of_calls=True,
        missing=_missing_tokens,
    ),
    "tpot": ProcessEstimator(
        lambda process: process.tokens.usual_each if process.tokens else math.nan,
        of_calls=True,
        missing=_missing_gaps,
    ),
    "itl": ProcessEstimator(
        lambda process: process.tokens.gap_percentile(99) if process.tokens else math.nan,
        of_calls=True,
        missing=_missing_late_gaps,
    ),
    "output_rate": ProcessEstimator(
        lambda process: process.seconds_per_token,
        is_rate=True,
        of_calls=True,
        missing=_missing_tokens,
    ),
    "batch_agreement": ProcessEstimator(
        lambda process: process.batch_agreement, missing=lambda process: process.batch_missing
    ),
}
"""How a quantity is estimated from fresh processes; ``load_performance`` estimates the others."""


def _calls(title: str, form: Literal["value", "spread"] = "value") -> Column:
    return Column("latency and throughput", title, form)


def _queries(title: str, form: Literal["value", "interval"] = "value") -> Column:
    return Column("queries under load", title, form)


def _tokens(title: str, form: Literal["value", "spread"] = "value") -> Column:
    return Column("tokens", title, form)


def _process(title: str) -> Column:
    return Column("start-up and memory", title)


# fmt: off
_PERFORMANCE: list[tuple[str, str, UpgradeRule | None, Column | None, str]] = [
    ("latency_mean", "s", None, None, "mean latency of a call"),
    ("latency_p50", "s", None, _calls("p50", "spread"), "median latency of a call"),
    ("latency_p90", "s", UpgradeRule(0.05), _calls("p90"), "90th percentile of the latencies"),
    ("latency_p95", "s", UpgradeRule(0.08), None, "95th percentile of the latencies"),
    ("latency_p99", "s", UpgradeRule(0.15), _calls("p99"), "99th percentile of the latencies"),
    ("throughput", "/s", UpgradeRule(0.05, estimate="throughput"), _calls("throughput"),
     "inputs per second"),
    ("device_time", "s", None, _calls("on GPU"),
     "median time of a call on a GPU, by the GPU's own events, without copies"),
    ("ttft", "s", UpgradeRule(0.08), _tokens("to the first", "spread"),
     "median time from the start of a call, or the scheduled time of a query, to its first token"),
    ("tpot", "s", UpgradeRule(0.05), _tokens("each", "spread"),
     "median over answers of the time for each further token"),
    ("itl", "s", UpgradeRule(0.15), _tokens("p99 of gaps"),
     "99th percentile of the time from a token to the next one, which shows stalls"),
    ("output_rate", "/s", UpgradeRule(0.08), _tokens("rate"), "tokens per second"),
    ("query_latency", "s", UpgradeRule(0.08), _queries("latency", "interval"),
     ("percentile of latencies under load in the slowest process, counted from the scheduled "
      "time, as LoadGen defines it")),
    ("query_ttft", "s", None, _queries("to the first", "interval"),
     ("percentile of the times from the scheduled time of a query to its first token, in the "
      "slowest process, as LoadGen defines it")),
    ("query_tpot", "s", None, _queries("each", "interval"),
     ("percentile of the times for each further token of an answer under load, in the slowest "
      "process, as LoadGen defines it")),
    ("goodput", "/s", None, _queries("goodput"),
     "queries per second completed under load that met all limits of the scenario"),
    ("query_rate", "/s", UpgradeRule(0.05), _queries("rate"),
     "queries per second completed under load"),
    ("peak_rate", "/s", UpgradeRule(0.08), _queries("peak", "interval"),
     ("highest rate of queries at which the scenario's latency percentile is within its limit; "
      "the interval is the highest rate shown good and the lowest shown bad")),
    ("queue_delay", "s", None, _queries("queue delay"),
     "mean time that queries waited for the model"),
    ("issue_delay", "s", None, _queries("issue delay"),
     "99th percentile of the delay that the load generator itself adds to queries"),
    ("start_time", "s", UpgradeRule(0.20, base=0.050, estimate="start_time"), _process("start"),
     "time from the start of a fresh process to its first answer"),
    ("load_time", "s", UpgradeRule(0.20, base=0.050, estimate="load_time"), _process("load"),
     "time to load the model in a fresh process"),
    ("first_inference", "s", UpgradeRule(0.20, base=0.025, estimate="first_inference"),
     _process("first call"),
     ("latency of the first call of a fresh process, with its preparation, in which "
      "a framework may compile the model")),
    ("peak_memory", "B", UpgradeRule(0.10, least_change=_MEMORY_NOISE, estimate="peak_memory"),
     _process("peak memory"),
     ("peak of resident memory above its size before the model was loaded, without pages of "
      "programs and libraries")),
    ("device_memory", "B",
     UpgradeRule(0.10, least_change=_DEVICE_MEMORY_STEP, estimate="device_memory"),
     _process("GPU memory"),
     ("peak of memory on a GPU since the model began to load, by the framework's counter or, if "
      "it has none, NVML's of the process")),
    ("import_memory", "B", UpgradeRule(0.10, least_change=_MEMORY_NOISE, estimate="import_memory"),
     _process("imports"),
     ("resident memory of the interpreter and its imports before the model is loaded, without "
      "pages of programs and libraries")),
    ("memory_growth", "B", UpgradeRule(0.50, base=512.0), _process("growth a call"),
     "memory that each call adds to a process and its device"),
    ("energy_per_input", "J", UpgradeRule(0.10), None,
     "energy of the device per input during the timed calls, by the device's counters"),
    ("batch_agreement", "", UpgradeRule(1.0, base=1.0, samples="outputs"), None,
     ("largest difference between 8 inputs alone and in one batch, as a multiple of the "
      "allowance for rounding; measured only if it has a limit")),
]
# fmt: on
"""Name, unit, default rule of upgrades, column, and description of each quantity."""

_OF_TOKENS = {"ttft", "tpot", "itl", "output_rate", "query_ttft", "query_tpot"}
_WITHOUT_LIMIT = {"query_latency", "query_ttft", "query_tpot", "issue_delay"}
"""Quantities whose limits are those of scenarios, or which have none."""

PERFORMANCE = [
    Quantity(
        name,
        unit,
        "higher" if unit == "/s" else "lower",
        "performance",
        description,
        limit_key="" if name in _WITHOUT_LIMIT else name,
        estimator=_ESTIMATORS.get(name),
        upgrade=rule,
        column=column,
        under_load=name not in _ESTIMATORS,
        of_gpu=name.startswith("device_"),
        of_tokens=name in _OF_TOKENS,
    )
    for name, unit, rule, column, description in _PERFORMANCE
]
"""Quantities that are estimated from fresh processes."""

# fmt: off
_SOAK: list[tuple[str, str, str, Literal["value", "interval"], float, str]] = [
    ("soak_growth", "B", "growth a call", "interval", 100.0,
     "memory that each call adds to a process and its device over a soak"),
    ("soak_threads", "", "threads", "value", 0.0,
     "number of threads gained, if it grows throughout the soak"),
    ("soak_descriptors", "", "descriptors", "value", 0.0,
     "number of file descriptors gained, if it grows throughout the soak"),
    ("soak_latency_drift", "fraction", "latency drift", "interval", 0.10,
     "increase of the median latency of a call over a soak"),
    ("soak_throughput_drift", "fraction", "throughput drift", "interval", 0.10,
     "increase of the time per input, the inverse of throughput, over a soak"),
    ("soak_outputs", "", "outputs", "value", 1.0,
     ("largest difference from the first outputs of a soak, as a multiple of the allowance for "
      "rounding")),
]
# fmt: on

SOAK = [
    Quantity(name, unit, "lower", "soak", description, name, column=Column("soaks", title, form))
    for name, unit, title, form, _, description in _SOAK
]
"""Quantities of one process over a long time: what time does to it."""

SOAK_LIMITS = {name: most for name, _, _, _, most, _ in _SOAK}
"""Quantity of a soak -> the largest value that may be where the manifest says none."""

# fmt: off
_AGREEMENT = [
    ("deviation", "", "", "of tolerance",
     "largest difference from the reference, as a multiple of the tolerance"),
    ("difference_max", "", "", "largest difference",
     "largest difference of an element from the reference"),
    ("difference_mean", "", "", "", "mean difference of the elements from the reference"),
    ("relative_difference_max", "", "", "",
     "largest difference of an element from the reference, as a share of the reference"),
    ("relative_difference_mean", "", "", "",
     "mean difference of the elements from the reference, as a share of the reference"),
    ("same_top1", "fraction", "top1", "same top-1",
     "share of inputs with the same best class as the reference's"),
    ("kl_max", "nat", "kl", "largest KL",
     "largest Kullback-Leibler divergence of an input's probabilities"),
    ("kl_mean", "nat", "", "", "mean Kullback-Leibler divergence of the probabilities"),
    ("js_max", "nat", "js", "", "largest Jensen-Shannon divergence of an input's probabilities"),
    ("js_mean", "nat", "", "", "mean Jensen-Shannon divergence of the probabilities"),
    ("hellinger_max", "", "hellinger", "",
     "largest Hellinger distance of an input's probabilities"),
    ("hellinger_mean", "", "", "", "mean Hellinger distance of the probabilities"),
]
# fmt: on
"""Name, unit, key of a limit, title of a column, and description of each quantity."""

AGREEMENT = [
    Quantity(
        name,
        unit,
        "higher" if name == "same_top1" else "lower",
        "agreement",
        description,
        limit_key,
        column=Column("agreement with the reference", title) if title else None,
    )
    for name, unit, limit_key, title, description in _AGREEMENT
]
"""Quantities that compare outputs with those of a reference."""

_ENTRIES = [*ACCURACY, *UPGRADE, *PERFORMANCE, *SOAK, *AGREEMENT]

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ENTRIES}
"""Name -> quantity, in the order of schemas, tables and documents.

An entry that is added before other modules of pytest_mlms are imported is taken up everywhere.
"""


def quantities_of(kind: Kind) -> list[Quantity]:
    """Return the quantities that items of this kind measure."""
    return [quantity for quantity in QUANTITIES.values() if quantity.kind == kind]


def upgrade_rules(samples: Samples | None = "rounds") -> dict[str, UpgradeRule]:
    """Return the default rules of upgrades by quantity, for comparisons over these samples.

    None stands for all samples.
    """
    rules = {}
    for name, quantity in QUANTITIES.items():
        rule = quantity.upgrade
        if rule is not None and samples in (None, rule.samples):
            rules[name] = rule
    return rules


def register(quantity: Quantity) -> None:
    """Add a quantity; raises ValueError where another one has its name.

    It is taken up everywhere if it is added before other modules of pytest_mlms are imported, as
    from a task in the entry point group ``pytest_mlms.tasks``.
    """
    if QUANTITIES.setdefault(quantity.name, quantity) != quantity:
        raise ValueError(f"there is a quantity {quantity.name!r} already; choose another name")
