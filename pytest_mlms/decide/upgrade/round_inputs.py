"""The inputs of a round's calls: which batch each call had, and which of them were timed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_mlms.decide.upgrade.rounds import Array, Round
from pytest_mlms.measure.evaluate.timed_inputs import ONE_GROUP, Elements, Mix


@dataclass(frozen=True, eq=False)
class RoundInputs:
    """The inputs of a round, the same for both sides.

    ``numbers`` has the batch of each call, as turns x calls; ``groups`` and ``elements`` are those
    of each batch. ``again`` are the turns of single calls on batches that earlier rounds showed as
    slower, and ``numbers_again`` the batches of these.
    """

    numbers: Array
    groups: Array
    mix: Mix = ONE_GROUP
    elements: Sequence[Elements] = ()
    again: Round | None = None
    numbers_again: Sequence[int] = ()

    @property
    def is_mixed(self) -> bool:
        """True if the inputs are of several groups."""
        return len(self.mix.names) > 1

    def of_group(self, group: int) -> Array:
        """Return which calls had inputs of a group, as turns x calls."""
        return np.asarray(self.groups[self.numbers] == group)

    def weights(self) -> Array:
        """Return the weight of each call by which groups have their shares, as turns x calls."""
        groups = self.groups[self.numbers]
        weights = np.zeros(groups.shape)
        for group, share in enumerate(self.mix.shares):
            chosen = groups == group
            weights[chosen] = share / max(1, int(chosen.sum()))
        return weights
