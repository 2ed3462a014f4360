"""Times of the tokens of generations, as MLPerf Inference defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class TokenTimes:
    """Seconds of the tokens of some calls.

    Attributes:
        first: From the start of each call, or the scheduled time of a query, to its first token.
        each: (last - first token) / (tokens - 1) of each call; NaN of a call with one token.
        gaps: From each token to the next one of its call, of all calls.
        count: The tokens of all calls.
        answers: The calls that have any.
    """

    first: Array
    each: Array
    gaps: Array
    count: int
    answers: int

    @classmethod
    def of(cls, times: Mapping[str, Array], less_wait: bool = False) -> TokenTimes | None:
        """Return those of a run's raw ``times``; None where nothing was generated.

        They have ``start``, the number of ``tokens`` of each call, and the time of each ``token``,
        which ``less_wait`` is that without the ``token_wait``, for a core since its call began.
        A query under load that was not served has no token. It counts with the time until its
        ``end``, that of the load, in ``first``, in ``each`` and as a gap.
        """
        if "tokens" not in times or not times["tokens"].any():
            return None
        served = times["tokens"] > 0
        counts = times["tokens"][served].astype(int)
        ends = np.cumsum(counts)
        at = times["token"] - times["token_wait"] if less_wait else times["token"]
        first = at[ends - counts]
        last = at[ends - 1]
        steps = np.where(counts > 1, counts - 1, np.nan)
        gaps = np.diff(at)
        within = np.ones(len(gaps), bool)
        within[ends[:-1] - 1] = False
        waits = np.empty(0) if served.all() else (times["end"] - times["start"])[~served]
        return cls(
            first=np.concatenate([first - times["start"][served], waits]),
            each=np.concatenate([(last - first) / steps, waits]),
            gaps=np.concatenate([gaps[within], waits]),
            count=int(ends[-1]),
            answers=len(counts),
        )

    @classmethod
    def joined(cls, runs: Sequence[Mapping[str, Array]], less_wait: bool) -> TokenTimes | None:
        """Return those of several runs; None where nothing was generated."""
        names = ("start", "tokens", "token", "token_wait")
        if not all(name in times for times in runs for name in names):
            return None
        joined = {name: np.concatenate([times[name] for times in runs]) for name in names}
        return cls.of(joined, less_wait)

    @property
    def usual_first(self) -> float:
        """The median of ``first``."""
        return float(np.median(self.first))

    @property
    def usual_each(self) -> float:
        """The median of ``each``; NaN where no call has a second token."""
        each = self.each[np.isfinite(self.each)]
        return float(np.median(each)) if len(each) else float("nan")

    def gap_percentile(self, percent: float) -> float:
        """Return a percentile (0 to 100) of the gaps; NaN where there are none."""
        return float(np.percentile(self.gaps, percent)) if len(self.gaps) else float("nan")
