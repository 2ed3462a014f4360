"""Study how often the limits of performance items are decided wrongly, and what an early end saves.

    bash ci/limit_study [--decisions 1000] [--quantity latency_p50] [--call '1 ms'] [--early 3]
                         [--noise NAME] [--budget 60]

Simulated processes go through the same functions as real ones, once with an early look and once
without, as --mlms-full has it. The true value is at the limit, 10 % to either side of it, and at
half of it. It prints the first table of "How often it is wrong" in docs/methodology.md; the second
one has --quantity latency_p90, _p95 and _p99 with --call '200 ms' and --budget 10000, where
processes have the least number of calls. The whole takes 10 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from limit_noise import CALL, NOISES, Machine, Noise, SimulatedPredictor

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Limit, Place
from pytest_mlms.core.units import parse_quantity
from pytest_mlms.measure.evaluate.performance import Measurement, measure_performance
from pytest_mlms.measure.evaluate.performance_plan import EARLY_PROCESSES, PerformancePlan
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from pytest_mlms.options import OPTIONS

RATIOS = (0.5, 0.9, 1.0, 1.1)
"""True values as shares of the limit."""

DEFAULTS = {option.name: option.default for option in OPTIONS}

_PLACE = Place(Path("study.yaml"), 1)
_CALLS = 2000  # of a process, for the true value


@dataclass(frozen=True)
class Setting:
    """The quantity that is limited, and how it is studied.

    ``early`` short processes come before an early look, and an item may take the seconds of
    ``budget``. ``decisions`` are those of each cell, and
    ``processes`` those whose mean is the true value.
    """

    quantity: str = "latency_p50"
    call: float = CALL
    early: int = EARLY_PROCESSES
    budget: float = DEFAULTS["budget"]
    noises: Sequence[Noise] = NOISES
    decisions: int = 1000
    processes: int = 2000
    seed: int = 1


@dataclass(frozen=True)
class Cell:
    """The decisions on one kind of noise where the true value is ``ratio`` of the limit."""

    noise: str
    ratio: float
    verdicts: Counter[str]
    endings: Counter[str]
    seconds: float

    def share(self, verdict: str) -> float:
        """Return the share of the decisions with a verdict."""
        return self.verdicts[verdict] / self.verdicts.total()

    @property
    def ended_early(self) -> float:
        """The share of the decisions that ended early."""
        return self.endings["early"] / self.endings.total()


def true_value(noise: Noise, setting: Setting, generator: np.random.Generator) -> float:
    """Return the mean over many long processes, once they have settled."""
    estimator = QUANTITIES[setting.quantity].estimator
    assert estimator is not None, "a limit of performance has an estimator"
    machine = Machine(generator)
    values = []
    for _ in range(setting.processes):
        predictor = SimulatedPredictor(machine, noise, setting.call)
        if noise.settled:
            predictor.run("single_stream", seconds=0, least=noise.settled, longest=0)
        run = predictor.run("single_stream", seconds=0, least=_CALLS, longest=0)
        record: Any = None
        mean = float(run.latencies.mean())
        values.append(estimator.value(ProcessResult(record, run, mean)))
    value = float(np.mean(values))
    return 1 / value if estimator.is_rate else value


def measure(
    noise: Noise, limit: Limit, early: int, machine: Machine, setting: Setting
) -> Measurement:
    """Decide on a limit by simulated processes, whose machine has the time."""
    plan = PerformancePlan(
        scenario="single_stream",
        batch_size=1,
        processes=DEFAULTS["processes"],
        duration=DEFAULTS["duration"],
        budget=setting.budget,
        limits=(limit,),
        early=early,
    )

    @contextlib.contextmanager
    def new_predictor() -> Iterator[Any]:
        yield SimulatedPredictor(machine, noise, setting.call)

    return measure_performance(
        plan, new_predictor, lambda _: (), lambda number, result: None, lambda: machine.seconds
    )


def study_cell(noise: Noise, ratio: float, truth: float, early: int, setting: Setting) -> Cell:
    """Decide as often as the setting says."""
    generator = np.random.default_rng(setting.seed)
    quantity = QUANTITIES[setting.quantity]
    value = truth / ratio if quantity.bound == "max" else truth * ratio
    limit = Limit(setting.quantity, value, _PLACE)
    verdicts: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    seconds = 0.0
    for _ in range(setting.decisions):
        machine = Machine(generator)
        found = measure(noise, limit, early, machine, setting)
        verdicts[found.decisions[0].verdict.value] += 1
        endings[found.ended] += 1
        seconds += machine.seconds
    return Cell(noise.name, ratio, verdicts, endings, seconds / setting.decisions)


def study_noise(noise: Noise, setting: Setting) -> str:
    """Return the row of one kind of noise."""
    truth = true_value(noise, setting, np.random.default_rng(setting.seed))
    cells = {}
    for ratio in RATIOS:
        for early in (0, setting.early):
            cells[ratio, bool(early)] = study_cell(noise, ratio, truth, early, setting)
    return make_row(noise.name, cells)


def make_row(name: str, cells: dict[tuple[float, bool], Cell]) -> str:
    """Return a row of the table: full and early beside each other."""
    columns = [
        _both(cells, 1.0, "PASSED"),
        _both(cells, 1.0, "FAILED"),
        _both(cells, 1.1, "PASSED"),
        _both(cells, 0.9, "FAILED"),
        _both(cells, 0.9, "PASSED"),
        _both(cells, 0.5, "PASSED"),
        f"{cells[0.9, False].seconds:.1f}, {cells[0.9, True].seconds:.1f}",
        f"{cells[0.5, False].seconds:.1f}, {cells[0.5, True].seconds:.1f}",
        f"{100 * cells[0.5, True].ended_early:.0f} %",
    ]
    return "| " + " | ".join([name, *columns]) + " |"


def _both(cells: dict[tuple[float, bool], Cell], ratio: float, verdict: str) -> str:
    shares = [100 * cells[ratio, early].share(verdict) for early in (False, True)]
    return ", ".join(f"{share:.1f}" for share in shares)


HEADER = (
    "| what varies | at the limit: PASSED | FAILED | 10 % beyond: PASSED | 10 % within: FAILED "
    "| PASSED | half: PASSED | seconds, 10 % within | half | ended early |\n|" + "---|" * 10
)


def parse_options(arguments: Sequence[str] | None = None) -> Setting:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--decisions", type=int, default=1000, help="of each cell")
    parser.add_argument("--quantity", default="latency_p50", choices=sorted(QUANTITIES))
    parser.add_argument("--call", default="1 ms", help="duration of a call")
    parser.add_argument(
        "--early",
        type=int,
        choices=range(2, 9),
        default=EARLY_PROCESSES,
        help="short processes before the early look",
    )
    parser.add_argument(
        "--noise", action="append", choices=[noise.name for noise in NOISES], help="default: all"
    )
    parser.add_argument(
        "--budget", type=float, default=DEFAULTS["budget"], help="seconds of an item, at most"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    return Setting(
        quantity=options.quantity,
        call=parse_quantity(options.call, "s"),
        early=options.early,
        budget=options.budget,
        noises=[noise for noise in NOISES if options.noise is None or noise.name in options.noise],
        decisions=options.decisions,
        seed=options.seed,
    )


def main() -> int:
    """Print the table; each cell has the share without and with an early look, in percent."""
    setting = parse_options()
    print(HEADER, flush=True)
    for noise in setting.noises:
        print(study_noise(noise, setting), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
