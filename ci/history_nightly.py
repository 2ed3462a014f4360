"""Rules that find changes in a history, each applied as a nightly process.

    INTERPRETER ci/history_nightly.py RULE < TASKS > REPORTS

Runs in the environment of the rule's package, so it imports nothing else. TASKS is a JSON list of
{"values": [...], "begin": N}: after each value from number N on, the rule sees all values so far.
REPORTS has for each task a list of [night, place]: changes reported in that night, and their place.
A change is reported once: a place within eight runs of a reported one is the same change.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

SAME = 8  # runs between two places of one change
LEAST = 0.02  # change that is reported, where a rule has no limit of its own
RISKS = {"ours": 3e-4, "ours_loose": 0.05}  # of our rule: as it is, and with the power of others

Places = Callable[[Sequence[float]], Sequence[int]]


def ours(values: Sequence[float], risk: float) -> list[tuple[int, int]]:
    """Return the shifts of our rule with this risk as [night, place]."""
    import numpy as np

    from pytest_mlms.keep.history.change_points import find_shifts
    from pytest_mlms.keep.history.shifts import Sensitivity

    shifts = find_shifts(np.log(np.asarray(values)), Sensitivity(LEAST, max_pvalue=risk))
    return [(shift.found, shift.first) for shift in shifts]


def otava(values: Sequence[float]) -> list[int]:
    """Apache Otava (Hunter; Fleming and others 2023) with its default window and p-value."""
    from otava.analysis import compute_change_points

    found, _ = compute_change_points(
        list(values), window_len=50, max_pvalue=0.001, min_magnitude=LEAST
    )
    return [int(point.index) for point in found]


def ruptures(values: Sequence[float]) -> list[int]:
    """Optimal partition of the logarithms with the penalty of BIC, by ruptures.

    The variance is that of neighbours' differences, by their median deviation. Levels that differ
    by less than 2 % are no change.
    """
    import numpy as np
    import ruptures as rpt

    logs = np.log(np.asarray(values))
    differences = np.diff(logs)
    deviation = 1.4826 * np.median(np.abs(differences - np.median(differences))) / math.sqrt(2)
    penalty = 3 * max(deviation, LEAST / 5) ** 2 * math.log(len(logs))
    ends = rpt.KernelCPD(kernel="linear", min_size=3).fit(logs[:, None]).predict(pen=penalty)
    bounds = [0, *ends]
    levels = [float(np.mean(logs[a:b])) for a, b in zip(bounds, ends, strict=False)]
    places = []
    for place, before, after in zip(ends, levels, levels[1:], strict=False):
        if abs(after - before) > LEAST:
            places.append(int(place))
    return places


def asv(values: Sequence[float]) -> list[int]:
    """The regressions of airspeed velocity, and those of the inverse values, which are gains."""
    from asv.step_detect import detect_regressions, detect_steps

    places = []
    for data in (list(values), [1 / value for value in values]):
        _, _, found = detect_regressions(detect_steps(data), threshold=LEAST)
        places += [after for _, after, _, _ in found or []]
    return sorted(map(int, places))


def previous(values: Sequence[float]) -> list[int]:
    """A value that differs from the one before by more than 5 %."""
    ratio = values[-1] / values[-2]
    return [len(values) - 1] if not 1 / 1.05 <= ratio <= 1.05 else []


def two_sigma(values: Sequence[float]) -> list[int]:
    """A value further than two standard deviations from the mean of the 30 before."""
    before = values[-31:-1]
    far = abs(values[-1] - statistics.fmean(before)) > 2 * statistics.stdev(before)
    return [len(values) - 1] if far else []


RULES: dict[str, Places] = {
    "otava": otava,
    "ruptures": ruptures,
    "asv": asv,
    "previous": previous,
    "two_sigma": two_sigma,
}


def reports(places_of: Places, values: Sequence[float], begin: int) -> list[tuple[int, int]]:
    """Return the new changes of each night; those of the night before ``begin`` are known."""
    known = list(places_of(values[:begin]))
    found = []
    for night in range(begin, len(values)):
        for place in places_of(values[: night + 1]):
            if all(abs(place - other) > SAME for other in known):
                known.append(place)
                found.append((night, place))
    return found


def answer(rule: str, task: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the reports of a task."""
    values = task["values"]
    begin = task["begin"]
    if rule in RISKS:
        return [report for report in ours(values, RISKS[rule]) if report[0] >= begin]
    return reports(RULES[rule], values, begin)


if __name__ == "__main__":
    json.dump([answer(sys.argv[1], task) for task in json.load(sys.stdin)], sys.stdout)
