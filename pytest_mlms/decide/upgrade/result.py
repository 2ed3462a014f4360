"""Result of an upgrade: the rounds so far, the comparisons, and the verdict."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison, InputGroup, LayerChange, Verdict, main_comparison
from pytest_mlms.decide.upgrade.crash import CRASH
from pytest_mlms.decide.upgrade.decision import verdict_of
from pytest_mlms.decide.upgrade.output_verdict import PICTURES, OutputsCompared
from pytest_mlms.decide.upgrade.round_estimate import OrderEffect
from pytest_mlms.decide.upgrade.round_record import RoundRecord
from pytest_mlms.decide.upgrade.rounds import Clock


@dataclass(frozen=True)
class UpgradeResult:
    """State of an upgrade after its rounds so far.

    The fields are those of the item's line in results.jsonl. ``complete`` is whether the run came
    to its end. ``layers`` are the layers that changed, traced where the candidate is slower;
    ``layers_lacking`` is the reason where they could not be traced. ``worse_inputs`` names the
    inputs that got worst, where a quantity of accuracy did or outputs disagree, and ``slow_inputs``
    those that got slower. ``outputs`` says what outputs were compared on. ``order_effect`` is that
    of the order in which both sides were started, None where the rounds don't show it.
    ``input_groups`` are there where the inputs have several shapes.
    """

    rounds: Sequence[RoundRecord] = ()
    complete: bool = False
    clock: Clock | None = None
    comparisons: Sequence[Comparison] = ()
    layers: Sequence[LayerChange] = ()
    layers_lacking: str = ""
    worse_inputs: Sequence[str] = ()
    outputs: OutputsCompared | None = None
    order_effect: OrderEffect | None = None
    slow_inputs: Sequence[str] = ()
    input_groups: Sequence[InputGroup] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        return verdict_of(self.comparisons)

    @property
    def latency(self) -> Comparison | None:
        """The comparison of latency, None before the first round."""
        for compared in self.comparisons:
            if compared.quantity == "latency":
                return compared
        return None

    @property
    def main(self) -> Comparison | None:
        """The comparison of latency, under load that of queries; None before the first round."""
        return main_comparison(self.comparisons)

    @property
    def regressed(self) -> list[Comparison]:
        """The quantities that are worse than their tolerances."""
        return [one for one in self.comparisons if one.verdict is Verdict.REGRESSED]

    @property
    def crashed(self) -> bool:
        """True if the candidate fails where the baseline does not."""
        return any(one.quantity == CRASH for one in self.regressed)

    @property
    def undecided_gates(self) -> list[Comparison]:
        """The gates that are not decided."""
        gates = [compared for compared in self.comparisons if compared.gate]
        return [gate for gate in gates if gate.verdict is Verdict.INCONCLUSIVE]

    @property
    def wrong_outputs(self) -> bool:
        """True if the candidate computes something else than the baseline."""
        return any(compared.of in ("inputs", "outputs") for compared in self.regressed)

    @property
    def other_pictures(self) -> bool:
        """True if outputs agree, but the stacks decode other pictures."""
        outputs = self.outputs
        return outputs is not None and not outputs.beyond and PICTURES in outputs.elsewhere

    @property
    def margin(self) -> float:
        """The distance of the main interval's worse end from its limit, as a ratio.

        It is negative where the interval reaches beyond the limit, and infinite without one.
        """
        if self.main is None:
            return math.inf
        farthest = self.main.high
        if QUANTITIES[self.main.quantity].sign < 0:
            farthest = 1 / self.main.low if self.main.low > 0 else math.inf
        return max(1 + self.main.tolerance - farthest, -sys.float_info.max)
