"""Arrivals of queries, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.arrivals import SPIN, ClosedLoop, OpenLoop, Taken

from tests.support.virtual_clock import VirtualClock

MS = 1_000_000  # nanoseconds
MINUTE = 60_000 * MS
CLOSE = 1000  # ns that readings of the clock may take


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    return VirtualClock(monkeypatch)


def open_loop(
    scheduled: list[int], most: int = 1, delay: int = 0, longest: int = MINUTE
) -> OpenLoop:
    return OpenLoop(np.array(scheduled, np.int64), most, delay, longest)


def served(loop: OpenLoop, clock: VirtualClock, service: int) -> Iterator[tuple[Taken, int]]:
    """Serve all queries with one instance; yield those of each call, and when it started."""
    loop.begin(clock.now)
    free = clock.now
    while True:
        taken = loop.take(free)
        if taken is None:
            return
        yield taken, clock.now
        clock.now += service
        free = clock.now


def test_a_query_starts_when_it_is_due(clock: VirtualClock) -> None:
    found = list(served(open_loop([5 * MS, 9 * MS]), clock, MS))
    assert [started // 1000 for _, started in found] == [5000, 9000]
    assert [taken.ready for taken, _ in found] == [5 * MS, 9 * MS]


def test_an_instance_sleeps_until_shortly_before_a_query_is_due(clock: VirtualClock) -> None:
    list(served(open_loop([50 * MS]), clock, 0))
    assert sum(clock.slept) == pytest.approx((50 * MS - SPIN) * 1e-9, rel=1e-3)


def test_a_query_that_waited_is_ready_when_the_instance_is_free(clock: VirtualClock) -> None:
    found = list(served(open_loop([0, MS, 2 * MS]), clock, 10 * MS))
    starts = [started for _, started in found]
    assert starts == pytest.approx([0, 10 * MS, 20 * MS], abs=CLOSE)
    assert [taken.ready for taken, _ in found] == pytest.approx(starts, abs=CLOSE)


@given(
    st.lists(st.integers(0, 20 * MS), min_size=1, max_size=30),
    st.integers(0, 30 * MS),
)
def test_one_instance_is_a_queue_first_in_first_out(gaps: list[int], service: int) -> None:
    """Lindley's recursion: a query starts when it is due, or when the one before is done."""
    scheduled = np.cumsum(gaps).tolist()
    with pytest.MonkeyPatch.context() as patches:
        clock = VirtualClock(patches)
        starts = [started for _, started in served(open_loop(scheduled), clock, service)]
    done = 0
    for due, started in zip(scheduled, starts, strict=True):
        expected = max(due, done)
        assert started == pytest.approx(expected, abs=CLOSE * len(scheduled))
        done = started + service


def test_a_full_batch_does_not_wait(clock: VirtualClock) -> None:
    loop = open_loop([0, MS, 2 * MS, 3 * MS], most=2, delay=10 * MS)
    found = list(served(loop, clock, 0))
    assert [(taken.first, taken.number) for taken, _ in found] == [(0, 2), (2, 2)]
    assert [started for _, started in found] == pytest.approx([MS, 3 * MS], abs=CLOSE)


def test_a_batch_waits_no_longer_than_its_first_query_may(clock: VirtualClock) -> None:
    loop = open_loop([0, 3 * MS, 8 * MS], most=3, delay=5 * MS)
    found = list(served(loop, clock, 0))
    assert [(taken.first, taken.number) for taken, _ in found] == [(0, 2), (2, 1)]
    assert [started for _, started in found] == pytest.approx([5 * MS, 13 * MS], abs=CLOSE)


def test_a_batch_takes_what_arrived_while_the_instance_was_busy(clock: VirtualClock) -> None:
    loop = open_loop([0, MS, 2 * MS, 3 * MS, 4 * MS], most=3, delay=0)
    found = list(served(loop, clock, 10 * MS))
    assert [(taken.first, taken.number) for taken, _ in found] == [(0, 1), (1, 3), (4, 1)]


@given(
    st.lists(st.integers(0, 3 * MS), min_size=1, max_size=40),
    st.integers(1, 8),
    st.integers(0, 5 * MS),
    st.integers(0, 9 * MS),
)
def test_batches_have_each_query_once_and_only_those_that_arrived(
    gaps: list[int], most: int, delay: int, service: int
) -> None:
    scheduled = np.cumsum(gaps).tolist()
    with pytest.MonkeyPatch.context() as patches:
        clock = VirtualClock(patches)
        found = list(served(open_loop(scheduled, most, delay), clock, service))
    following = 0
    for taken, started in found:
        assert taken.first == following
        assert 1 <= taken.number <= most
        following += taken.number
        assert scheduled[following - 1] <= started
        assert taken.ready <= started
    assert following == len(scheduled)


def test_no_call_starts_after_the_limit_of_time(clock: VirtualClock) -> None:
    found = list(served(open_loop([0, 5 * MS, 50 * MS], longest=20 * MS), clock, MS))
    assert len(found) == 2
    assert clock.now < 21 * MS


def test_a_loop_that_is_stopped_gives_no_more(clock: VirtualClock) -> None:
    loop = open_loop([0, 0])
    loop.begin(0)
    assert loop.take(0) is not None
    loop.stop()
    assert loop.take(0) is None


def count_closed(loop: ClosedLoop, service: int) -> int:
    """Serve a closed loop whose calls take so long; return the number of its queries."""
    loop.begin(0)
    free = 0
    while loop.take(free) is not None:
        free += service
    return free // service


@pytest.mark.parametrize(
    ("seconds", "least", "longest", "expected"),
    [
        (0, 7, MINUTE, 7),
        (10 * MS, 1, MINUTE, 10),
        (10 * MS, 20, MINUTE, 20),
        (MINUTE, 1, 5 * MS, 5),
    ],
)
def test_a_closed_loop_ends_by_time_and_count(
    seconds: int, least: int, longest: int, expected: int
) -> None:
    assert count_closed(ClosedLoop(seconds, least, longest), MS) == expected


def test_a_closed_loop_has_one_query_at_least() -> None:
    assert count_closed(ClosedLoop(0, 1, 0), MS) == 1
