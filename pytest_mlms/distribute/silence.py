"""Detection of workers that have fallen silent: a stopped process, a frozen host, a lost link."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_mlms.distribute.workers import WorkerState

_CHECK_SECONDS = 2.0  # between two checks, at most, unless this process was stopped


class SilenceMonitor:
    """Finds workers without a message for ``limit`` seconds; ``now`` is the monotonic time."""

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._last_check = now

    def find_silent(self, workers: Iterable[WorkerState], now: float) -> list[WorkerState]:
        """Return the workers that have become silent since the last check.

        If this process itself was stopped for long, no worker could be heard, and the silence of
        all is counted anew.
        """
        was_stopped = now - self._last_check > _CHECK_SECONDS + self._limit / 2
        self._last_check = now
        found = []
        for worker in workers:
            liveness = worker.liveness
            if was_stopped:
                liveness.counts_from = now
            elif not liveness.given_up and liveness.silence(now) > self._limit:
                liveness.given_up = True
                found.append(worker)
        return found
