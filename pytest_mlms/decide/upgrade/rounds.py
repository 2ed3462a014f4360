"""Raw measurements of a round, the clocks that they can be read by, and the inputs of its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from mlms_predictors._run.replies import DeviceBytes
from numpy.typing import NDArray

from pytest_mlms.core.token_times import TokenTimes
from pytest_mlms.measure.evaluate.timed_inputs import ONE_GROUP, Elements, Mix

Array = NDArray[Any]
Outputs = Mapping[str, Array]
SideName = Literal["a", "b"]
Clock = Literal["device", "adj", "cpu", "wall"]

SIDES: tuple[SideName, SideName] = ("a", "b")
"""A is the baseline, B the candidate."""

_PAGE = 4096

CLOCKS: dict[Clock, str] = {
    "device": "time on the device, by its own events",
    "adj": "wall time less the calling thread's wait for a core",
    "cpu": "CPU time of the process",
    "wall": "wall time",
}
"""Clock -> its description. The first that both sides have is used by default."""


@dataclass(frozen=True, eq=False)
class Side:
    """Measurements of one process in a round.

    ``wall``, ``wait`` and ``device`` are seconds, as turns x calls; ``cpu`` is seconds a call, one
    value a turn. ``wait`` is None where the kernel does not count it, ``device`` where the
    predictor does not report it, ``peak_bytes`` (of the whole process) where the kernel cannot.
    ``import_bytes`` are those before the model was loaded, None in records of earlier versions.
    ``start_seconds`` are those from the start of the process to its first answer, ``growth`` the
    bytes that a call added, ``joules`` the energy of an input where the device counts it.
    ``idle_cpu`` are the CPU seconds of a second in which nothing is called, ``warm_up_seconds``
    those of all calls between the first one and the timed ones, ``late_seconds`` those of a call
    after them. ``all_times`` are those of each call up to the late ones, as if all inputs took the
    same time. ``device_memory`` is the peak on a GPU, ``event_times`` are the seconds between the
    events of a call there, and of one whose launches had a head start (None: it can't have one).
    ``unmeasured`` has the reason of each quantity that can't be measured of the model.
    ``tokens`` are the times of those of all turns, one after the other; None: nothing is generated.
    """

    wall: Array
    wait: Array | None
    cpu: Array
    device: Array | None
    load_seconds: float
    first_seconds: float
    peak_bytes: int | None
    start_seconds: float | None = None
    growth: float | None = None
    joules: float | None = None
    idle_cpu: float | None = None
    import_bytes: int | None = None
    warm_up_seconds: float | None = None
    late_seconds: float | None = None
    all_times: Array | None = None
    device_memory: DeviceBytes | None = None
    event_times: tuple[float, float | None] | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    tokens: TokenTimes | None = None

    @property
    def model_bytes(self) -> int | None:
        """The peak above what the process had before the model was loaded, a page at least.

        It is that of the whole process where that isn't known.
        """
        if self.peak_bytes is None or self.import_bytes is None:
            return self.peak_bytes
        return max(_PAGE, self.peak_bytes - self.import_bytes)

    def times(self, clock: Clock) -> Array:
        """Return the seconds of each call by ``clock``, as turns x calls (``cpu``: turns x 1)."""
        if clock == "cpu":
            return self.cpu[:, None]
        if clock == "device" and self.device is not None:
            return self.device
        if clock == "adj" and self.wait is not None:
            return np.asarray(self.wall - self.wait)
        return self.wall

    def arrays(self) -> dict[str, Array]:
        """Return the raw times by name, without those that were not measured."""
        arrays = {"wall": self.wall, "wait": self.wait, "cpu": self.cpu, "device": self.device}
        arrays["late"] = self.all_times
        if self.tokens is not None:
            arrays.update(first=self.tokens.first, each=self.tokens.each, gaps=self.tokens.gaps)
        return {name: values for name, values in arrays.items() if values is not None}


class Round(NamedTuple):
    """Measurements of both sides in one round: a fresh process each, in interleaved turns."""

    a: Side
    b: Side


def available_clocks(measured: Round) -> list[Clock]:
    """Return the clocks that both sides have, the least disturbed first."""
    missing: set[Clock] = set()
    for side in measured:
        if side.device is None:
            missing.add("device")
        if side.wait is None:
            missing.add("adj")
    return [clock for clock in CLOCKS if clock not in missing]


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
