"""The sizes of batches that an agent prepares before a load."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.load_request import LoadRequest, sizes_of


def request(most: int, per_query: int = 1) -> LoadRequest:
    return LoadRequest(
        batches=0,
        per_query=per_query,
        instances=1,
        most=most,
        max_delay=0,
        seconds=0.0,
        least=1,
        longest=1.0,
        idle=0.0,
        available=0,
    )


def test_every_size_of_a_small_batcher_is_prepared() -> None:
    assert sizes_of(request(4), 100) == [1, 2, 3, 4]
    assert sizes_of(request(3, per_query=8), 100) == [8, 16, 24]


def test_one_query_after_the_other_makes_no_batches() -> None:
    assert sizes_of(request(8), 0) == [1]


@given(st.integers(1, 10**9), st.integers(0, 10**7))
def test_a_large_batcher_is_prepared_by_few_calls(most: int, queries: int) -> None:
    sizes = sizes_of(request(most), queries)
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 1
    assert sizes[-1] == max(1, min(most, queries)), "no batch is larger than what may wait"
    assert len(sizes) <= 64 + 24
    assert all(after <= 2 * before for before, after in itertools.pairwise(sizes))
