"""The procedure of an upgrade item: rounds of both stacks until every gate is decided, and the
record of it.

What is decided is compare.py's; what is said of it is explain.py's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_mlms.agent.process import Array
from pytest_mlms.errors import AgentError, InvalidRun
from pytest_mlms.records import Comparison, Verdict, plain_comparison
from pytest_mlms.upgrade.decision import (
    CLOCKS,
    Clock,
    Figure,
    available_clocks,
    compare_rounds,
    figures_of,
    is_decided,
    verdict_of,
)
from pytest_mlms.upgrade.interleave import SIDES, AgentPair, RoundRecord
from pytest_mlms.upgrade.layer_diff import LayerChange, changed_layers
from pytest_mlms.upgrade.output_check import check_outputs

__all__ = ["Criteria", "Upgrade"]

_PROFILES = 4  # times that each side is traced, in turns
_PROFILED_CALLS = 5


@dataclass(frozen=True)
class Criteria:
    """What an upgrade is held to.

    Tolerances by quantity (instead of the defaults), gates, the clock asked for.
    """

    tolerances: Mapping[str, float]
    gates: Sequence[str] = ("latency",)
    clock: Clock | None = None

    def as_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return {"tolerances": dict(self.tolerances), "gates": list(self.gates), "clock": self.clock}


class Upgrade:
    """Takes round after round, and keeps what is known so far in ``facts``, plain values for the
    item's line.
    """

    def __init__(
        self,
        terms: Criteria,
        batch_size: int,
        check: Callable[[AgentPair, Mapping[str, Mapping[str, Array]]], list[Comparison]],
        keep: Callable[[str, Mapping[str, Array]], None],
        look: Callable[[AgentPair], list[str]] = lambda pair: [],
    ) -> None:
        self.comparisons: list[Comparison] = []
        self.layers: list[LayerChange] = []
        self.facts: dict[str, Any] = {"rounds": [], "complete": False}
        self._terms, self._batch_size = terms, batch_size
        self._check, self._keep, self._look = check, keep, look
        self._figures: list[dict[str, Figure]] = []
        self._outputs: Mapping[str, Mapping[str, Array]] = {}
        self._of_outputs: list[Comparison] = []

    @property
    def verdict(self) -> Verdict:
        """The verdict so far; without two rounds there is none but that of wrong outputs."""
        return verdict_of(self.comparisons) if self.comparisons else Verdict.INCONCLUSIVE

    @property
    def margin(self) -> float:
        """How far the worst end of latency's interval is inside of what it may be.

        Infinity where there is none.
        """
        inside = [
            1 + one.tolerance - one.high for one in self.comparisons if one.quantity == "latency"
        ]
        return inside[0] if inside else math.inf

    def after_round(self, index: int, shift: RoundRecord, pair: AgentPair) -> bool:
        """Take a round, whose processes are alive; return whether all is decided.

        Raises InvalidRun where it can't be trusted, AgentError where a process died.
        """
        self._record(index, shift)
        faults = self._look(pair)
        if faults:
            raise InvalidRun(
                f"what was measured can't be trusted; {'; '.join(faults)}; run it again where that isn't so"
            )
        if index == 0:
            self._of_outputs = self._check(pair, shift.outputs)
            self._outputs = shift.outputs
        else:
            self._check_stable(index, shift, pair)
        self.comparisons = self._of_outputs + compare_rounds(
            self._figures, self._terms.tolerances, self._terms.gates
        )
        self.facts["comparisons"] = [plain_comparison(one) for one in self.comparisons]
        slower = any(
            one.verdict is Verdict.REGRESSED and one.unit in ("s", "/s") for one in self.comparisons
        )
        if slower and not self.layers:
            self._trace(pair)
        return is_decided(self.comparisons, index + 1)

    def _record(self, index: int, shift: RoundRecord) -> None:
        """Keep the round before computing anything from it, which takes seconds in which somebody
        may interrupt.
        """
        clock = self._clock(shift)
        self.facts["clock"] = clock
        self.facts["rounds"].append({**shift.facts, "figures": {}})
        self._keep(f"pairs-{index}.npz", shift.raw)
        figures = figures_of(shift.round, clock, self._batch_size)
        self._figures.append(figures)
        self.facts["rounds"][-1]["figures"] = {name: _plain(one) for name, one in figures.items()}

    def _clock(self, shift: RoundRecord) -> Clock:
        there, asked = available_clocks(shift.round), self._terms.clock
        if asked and asked not in there:
            raise InvalidRun(
                f"--mlms-clock {asked} ({CLOCKS[asked]}) isn't there: "
                f"{_WHY_NOT.get(asked, 'this system has none')}; ask for one of {', '.join(there)}, or for none"
            )
        return asked or self.facts.get("clock") or there[0]

    def _check_stable(self, index: int, shift: RoundRecord, pair: AgentPair) -> None:
        """Raise InvalidRun where a side computed something else than in the first round from the
        same inputs.
        """
        for side in SIDES:
            for name, output in shift.outputs[side].items():
                found = check_outputs({name: self._outputs[side][name]}, {name: output})
                if found.verdict is not Verdict.PASSED:
                    raise InvalidRun(
                        f"{pair.labels[side]} computed another {name!r} in round {index + 1} than in round 1 from the "
                        f"same inputs ({found.lacking or f'{found.ratio:.3g} % of the largest value apart'}); look for "
                        f"uninitialised memory or a race"
                    )

    def _trace(self, pair: AgentPair) -> None:
        """Find the layers that moved, in a pass of its own: profiling changes what is timed."""
        profiles: dict[str, list[Any]] = {side: [] for side in SIDES}
        try:
            for _ in range(_PROFILES):
                for side in SIDES:
                    with pair.only(side) as predictor:
                        profiles[side] += predictor.profile(pair.batches[0], _PROFILED_CALLS)
        except (
            AgentError
        ) as error:  # whatever the profiler does to the framework, the item has regressed
            self.facts["layers_lacking"] = f"{error}"
            return
        self.layers = changed_layers(profiles["a"], profiles["b"])
        self.facts["layers"] = [list(layer) for layer in self.layers]


def _plain(figure: Figure) -> list[float | None]:
    """Return what JSON can hold; an error without bound is null."""
    return [value if math.isfinite(value) else None for value in figure]


_WHY_NOT = {
    "adj": "the kernel doesn't count the wait of a thread for a core (/proc/thread-self/schedstat)",
    "device": "the predictor doesn't tell the time on the device, or the device is the CPU",
}
