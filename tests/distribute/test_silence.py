"""Detection of silent workers."""

from __future__ import annotations

from pytest_mlms.distribute.silence import SilenceMonitor
from pytest_mlms.distribute.workers import WorkerState
from tests.distribute.fakes import make_worker


def heard_at(time: float) -> WorkerState:
    worker = make_worker()
    worker.liveness.counts_from = 0
    worker.liveness.channel.last_message = time
    return worker


def test_a_worker_without_a_message_for_the_limit_is_found_once() -> None:
    monitor = SilenceMonitor(limit=60, now=99)
    silent = heard_at(39)
    alive = heard_at(50)
    assert monitor.find_silent([silent, alive], now=100) == [silent]
    assert monitor.find_silent([silent, alive], now=101) == []


def test_silence_does_not_count_while_this_process_was_stopped() -> None:
    monitor = SilenceMonitor(limit=60, now=100)
    worker = heard_at(99)
    assert monitor.find_silent([worker], now=1000) == []
    assert worker.liveness.silence(1010) == 10
    assert monitor.find_silent([worker], now=1001) == []
