"""Study how often ``mlms bisect`` is right: packages of ours with a planted change.

    bash ci/bisect_study [--runs 20] [--plants slower wrong crash drift undone] [--budget 60]

Each run is the command as a user gives it, on twelve releases in real environments, which pip
installs from wheels. The network of a package computes a millisecond on the CPU. The release with
the change is drawn anew for each run. Runs that build/bisect_study/runs-COMMIT.jsonl has are not
made again, so a study can be made in pieces; remove the file to begin anew. The table of
docs/bisect.md is printed at the end. A run takes less than a minute on a quiet machine, else up to
three minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bisect_plants import PLANTS, History, Plant, write_project
from measured_commit import measured_commit

__all__ = ["Run", "judge", "table_lines"]

WORK = Path(__file__).parents[1] / "build" / "bisect_study"
RUNS = WORK / f"runs-{measured_commit()}.jsonl"
NODEID = "manifests/digits.yaml::test_upgrade"


@dataclass(frozen=True)
class Run:
    """A bisection: the right answer, and the answer. ``load`` is that of the machine."""

    plant: str
    number: int
    expected: str
    release: str
    kind: str
    accused: str
    probes: int
    seconds: float
    load: float

    @property
    def is_right(self) -> bool:
        """True if the answer and the accused release are right."""
        return (self.kind, self.accused) == (self.expected, self.release)

    @property
    def is_wrongly_accused(self) -> bool:
        """True if a release was accused that has no change."""
        return bool(self.accused) and self.accused != self.release


def judge(plant: str, number: int, history: History, record: dict[str, Any], seconds: float) -> Run:
    """Return a run, of the content of its bisect.json."""
    answer = record.get("answer") or {"kind": "none", "new": ""}
    kind = answer["kind"]
    measured = [probe for probe in record["probes"] if probe["run"]]
    return Run(
        plant=plant,
        number=number,
        expected=history.expected.kind,
        release=history.expected.release,
        kind=kind,
        accused=answer["new"] if kind == "found" else "",
        probes=len(measured),
        seconds=round(seconds, 1),
        load=round(os.getloadavg()[0], 1),
    )


def bisect(name: str, number: int, budget: float) -> Run:
    """Run ``mlms bisect`` on a history that the number draws."""
    plant = PLANTS[name]
    history = plant.draw(random.Random(f"{name} {number}"))
    folder = WORK / "runs" / f"{name}-{number:02}"
    shutil.rmtree(folder, ignore_errors=True)
    write_project(folder, plant, history, WORK)
    start = time.monotonic()
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(
            _command(plant, history, budget),
            cwd=folder,
            env=_environment(folder / "wheels"),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    record = json.loads((folder / "bisect.json").read_text())
    return judge(name, number, history, record, time.monotonic() - start)


def _command(plant: Plant, history: History, budget: float) -> list[str]:
    good, bad = history.ends
    return [
        *(sys.executable, "-m", "pytest_mlms", "bisect", NODEID),
        *(f"--good={plant.package}=={good}", f"--bad={plant.package}=={bad}"),
        f"--budget={budget:g}",
        f"--mlms-cache={WORK / 'cache'}",
        f"--mlms-predictors={WORK / 'predictors'}",
    ]


def _environment(wheels: Path) -> dict[str, str]:
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}
    return {**os.environ, **pip}


def read_runs() -> list[Run]:
    """Return the runs that were made so far."""
    if not RUNS.exists():
        return []
    return [Run(**json.loads(line)) for line in RUNS.read_text().splitlines()]


def run_study(plants: Sequence[str], count: int, budget: float) -> None:
    """Make the runs that are missing, one of each plant in turns, and append each to the file."""
    made = {(run.plant, run.number) for run in read_runs()}
    for number in range(count):
        for name in plants:
            if (name, number) in made:
                continue
            run = bisect(name, number, budget)
            with RUNS.open("a") as file:
                file.write(f"{json.dumps(asdict(run))}\n")
            right = "right" if run.is_right else f"WRONG, expected {run.expected} {run.release}"
            answer = f"{run.kind} {run.accused}".rstrip()
            print(f"{name} {number}: {answer}, {run.probes} probes, {right}", flush=True)


def table_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a table with a row for each plant."""
    yield "| planted | right | wrong releases accused | probes (median, most) | seconds | load |"
    yield "|---|---|---|---|---|---|"
    for name, plant in PLANTS.items():
        of_plant = [run for run in runs if run.plant == name]
        if of_plant:
            yield _row(plant, of_plant)


def _row(plant: Plant, runs: Sequence[Run]) -> str:
    right = sum(run.is_right for run in runs)
    wrong = sum(run.is_wrongly_accused for run in runs)
    probes = [run.probes for run in runs]
    seconds = statistics.median(run.seconds for run in runs)
    load = statistics.median(run.load for run in runs)
    return (
        f"| {plant.description} | {right} of {len(runs)} | {wrong} "
        f"| {statistics.median(probes):g}, {max(probes)} | {seconds:.0f} | {load:.1f} |"
    )


def parse_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="of each plant")
    parser.add_argument("--plants", nargs="+", choices=PLANTS, default=list(PLANTS))
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a judgement")
    return parser.parse_args(words)


def main() -> int:
    """Make the runs, and print the table."""
    options = parse_options()
    run_study(options.plants, options.runs, options.budget)
    for line in table_lines(read_runs()):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
