"""Study what changes of a history are found, and what is reported wrongly, beside other rules.

    bash ci/history_study [--years 200] [--slow-years 20] [--rules ours otava …] [--processes 2]
                          [--noises white recorded drift versions …] [--nights 100000]
                          [--output docs/history_study.md]

Writes docs/history_study.md; cells that are not computed are those of the last study of this
commit, which are kept in build/history_study. Every rule is a nightly process: after each run it
sees the history so far, and reports new changes. Series are simulated, and recorded on a busy
machine; steps are planted by multiplying. Apache Otava, ruptures and airspeed velocity (asv) run in
virtual environments of their own, as Otava pins old packages. They are slow, so they get
--slow-years of each noise. The whole takes half an hour on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from history_noise import NIGHTS, NOISES, Values, read_recorded, with_drift
from history_page import Cell, Drift, Found, Study, make_page
from history_versions import KINDS, VersionCell, measure
from history_versions import NOISES as VERSION_NOISES
from measured_commit import measured_commit

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "history_study"
CELLS = ENVIRONMENTS / f"cells-{measured_commit()}.json"
NIGHTLY = Path(__file__).with_name("history_nightly.py")

PACKAGES = {"otava": "apache-otava==0.8.0", "ruptures": "ruptures==1.1.10", "asv": "asv==0.6.6"}
"""Rule -> the package that it is of, in an environment of its own."""

RULES = ("ours", "ours_loose", "otava", "ruptures", "asv", "previous", "two_sigma")
SLOW = ("otava", "asv", "ruptures")
STEPS = (0.03, 0.05, 0.10, 0.20)
RECORDED_STEPS = (0.10, 0.20, 0.50, 1.00)
BEGIN = 12  # points that every rule has before its first night
SEEN = 30  # nights in which a step must be found
PLACES = (60, 100)  # between which steps are planted
OFF = 10  # runs that the place of a step may be wrong by
CHUNK = 10  # tasks of a process

Report = tuple[int, int]  # night, place


@dataclass(frozen=True)
class Task:
    """A series for a rule, which reports from the night ``begin`` on."""

    values: Values
    begin: int

    def document(self) -> dict[str, object]:
        """Return the task as history_nightly.py reads it: values, not their logarithms."""
        return {"values": np.exp(self.values).tolist(), "begin": self.begin}


def interpreter_of(rule: str) -> str:
    """Return the interpreter that a rule runs in; its environment is made where it is missing."""
    if rule not in PACKAGES:
        return sys.executable
    folder = ENVIRONMENTS / PACKAGES[rule]
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        packages = [PACKAGES[rule], "numpy", "scipy"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "complete").touch()
    return str(python)


def ask(rule: str, tasks: Sequence[Task], processes: int) -> list[list[Report]]:
    """Return the reports of a rule on each task."""
    interpreter = interpreter_of(rule)
    size = CHUNK if rule in SLOW else 10 * CHUNK
    chunks = [tasks[begin : begin + size] for begin in range(0, len(tasks), size)]

    def run(chunk: Sequence[Task]) -> list[list[Report]]:
        text = json.dumps([task.document() for task in chunk])
        command = [interpreter, str(NIGHTLY), rule]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
        done = subprocess.run(
            command, input=text, stdout=subprocess.PIPE, env=environment, text=True, check=True
        )
        found: list[list[Report]] = json.loads(done.stdout)
        return found

    with ThreadPoolExecutor(processes) as pool:
        return [reports for chunk in pool.map(run, chunks) for reports in chunk]


def alarms(reports: Sequence[Sequence[Report]], nights: float) -> tuple[float, float]:
    """Return the reports in a year, with their standard error over series of this many nights."""
    counts = np.array([len(of_series) for of_series in reports]) * NIGHTS / nights
    error = counts.std(ddof=1) / math.sqrt(len(counts)) if len(counts) > 1 else math.inf
    return float(counts.mean()), float(error)


def planted(series: Sequence[Values], step: float, seed: int) -> tuple[list[Task], list[int]]:
    """Return series with a step each, up or down in turns, and the places of the steps.

    A series ends where the step must have been found.
    """
    rng = np.random.default_rng(seed)
    tasks = []
    places = []
    for number, values in enumerate(series):
        latest = min(PLACES[1], len(values) - SEEN)
        place = int(rng.integers(min(PLACES[0], latest - 1), latest))
        stepped = values[: place + SEEN].copy()
        stepped[place:] += math.log1p(step) * (-1) ** number
        tasks.append(Task(stepped, place))
        places.append(place)
    return tasks, places


def delays(reports: Sequence[Sequence[Report]], places: Sequence[int]) -> list[int]:
    """Return after how many runs the steps were found, of those that were."""
    found = []
    for of_series, place in zip(reports, places, strict=True):
        nights = [night for night, where in of_series if abs(where - place) <= OFF]
        if nights:
            found.append(min(nights) - place + 1)
    return found


class Runner:
    """Asks the rules, and returns cells of the page."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def years(self, rule: str) -> int:
        """Return how many series a rule gets."""
        count = self.options.slow_years if rule in SLOW else self.options.years
        return int(count)

    def simulated(self, rule: str, noise: str) -> Cell:
        """Return how a rule does on simulated noise."""
        rng = np.random.default_rng(self.options.seed)
        make = NOISES[noise].logarithms
        return self.cell(rule, noise, [make(rng, NIGHTS) for _ in range(self.years(rule))], STEPS)

    def recorded(self, rule: str) -> Cell:
        """Return how a rule does on the recorded series."""
        return self.cell(rule, "recorded", list(read_recorded().values()), RECORDED_STEPS)

    def cell(self, rule: str, noise: str, series: Sequence[Values], steps: Sequence[float]) -> Cell:
        """Return a rule's false alarms on series, and how it finds steps in them."""
        processes = self.options.processes
        quiet = ask(rule, [Task(values, BEGIN) for values in series], processes)
        nights = float(np.mean([len(values) - BEGIN for values in series]))
        rate, error = alarms(quiet, nights)
        found = []
        for step in steps:
            tasks, places = planted(series, step, self.options.seed)
            waits = delays(ask(rule, tasks, processes), places)
            middle = float(np.median(waits)) if waits else None
            found.append(Found(step, len(waits) / len(places), middle))
        return Cell(rule, noise, len(series), rate, error, found)

    def drift(self, rule: str) -> Drift:
        """Return after how many runs a rule finds slow drift."""
        rng = np.random.default_rng(self.options.seed)
        series = [with_drift(rng, NIGHTS) for _ in range(self.years(rule))]
        reports = ask(rule, [Task(values, BEGIN) for values in series], self.options.processes)
        first = [min(night for night, _ in of_series) for of_series in reports if of_series]
        count = sum(len(of_series) for of_series in reports) / len(reports)
        middle = float(np.median(first)) if first else None
        return Drift(rule, len(first) / len(series), middle, count)

    def versions(self) -> list[VersionCell]:
        """Return what our rule says of nights with another version."""
        cells = []
        for kind in KINDS:
            for noise in VERSION_NOISES:
                cells.append(measure(kind, noise, self.options.nights, self.options.seed))
        return cells


def run_study(options: argparse.Namespace, study: Study) -> Study:
    """Ask the rules on the kinds of series, and replace their cells of an earlier study."""
    runner = Runner(options)
    for rule in options.rules:
        for noise in options.noises:
            if noise == "versions":
                if rule == "ours":
                    study = study.with_versions(runner.versions())
            elif noise == "drift":
                study = study.with_drift(runner.drift(rule))
            elif noise == "recorded":
                study = study.with_cell(runner.recorded(rule))
            else:
                study = study.with_cell(runner.simulated(rule, noise))
            study.write(CELLS)
            print(f"{rule}, {noise}", flush=True)
    return study


def parse_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--years", type=int, default=200, help="of each noise, for fast rules")
    parser.add_argument("--slow-years", type=int, default=20, help="the same for otava and asv")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--nights", type=int, default=100_000, help="with another version, each")
    noises = [*NOISES, "recorded", "drift", "versions"]
    parser.add_argument("--noises", nargs="+", choices=noises, default=noises)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "history_study.md")
    return parser.parse_args(words)


def main() -> int:
    """Run the study, and write its page."""
    options = parse_options()
    CELLS.parent.mkdir(parents=True, exist_ok=True)
    study = run_study(options, Study.read(CELLS))
    options.output.write_text(make_page(study))
    return 0


if __name__ == "__main__":
    sys.exit(main())
