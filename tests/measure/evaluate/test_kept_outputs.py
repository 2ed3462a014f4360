"""Tests of the outputs that are kept for other items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.kept_outputs import KeptOutputs, OutputsKeeper, OutputsStore

PREDICTOR: Any = None


def kept(rows: int = 5) -> KeptOutputs:
    """Return outputs of 8 bytes a row, computed in batches of 2."""
    values = np.arange(rows, dtype=np.float64)
    inputs = Inputs(None, {}, 2)
    return KeptOutputs({"y": values}, inputs, PREDICTOR, "test_accuracy[x]", "accuracy")


def test_the_rows_come_in_the_batches_that_they_were_computed_in() -> None:
    assert [rows["y"].tolist() for rows in kept().batches(["y"])] == [[0, 1], [2, 3], [4]]


def test_what_was_used_longest_ago_goes_first() -> None:
    store = OutputsStore(most_bytes=100)
    for key in ("a", "b"):
        store.keep(key, kept())
    assert store.get("a") is not None
    store.keep("c", kept())
    assert store.get("b") is None
    assert store.get("a") is not None
    assert store.get("c") is not None


def test_outputs_that_are_kept_again_replace_the_others() -> None:
    store = OutputsStore(most_bytes=100)
    store.keep("a", kept())
    again = kept()
    store.keep("a", again)
    assert store.get("a") is again


def test_outputs_that_are_too_large_are_not_kept() -> None:
    store = OutputsStore(most_bytes=39)
    store.keep("a", kept())
    assert store.get("a") is None


def test_outputs_without_a_key_are_not_kept() -> None:
    store = OutputsStore()
    store.keep(None, kept())
    assert store.get(None) is None


class FakeBatch:
    """A batch whose outputs are given, or an error."""

    def __init__(self, found: Array | Exception) -> None:
        self._found = found

    def rows(self, name: str) -> Array:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def arrays_of(*found: Array | Exception, most_bytes: int = 1000) -> Any:
    keeper = OutputsKeeper(["y"], most_bytes)
    for rows in found:
        batch: Any = FakeBatch(rows)
        keeper.add(batch)
    return keeper.arrays()


TWO = np.ones((2, 3))


def test_a_keeper_has_the_rows_of_all_batches() -> None:
    assert arrays_of(TWO, 2 * TWO[:1])["y"].tolist() == [[1] * 3, [1] * 3, [2] * 3]


@pytest.mark.parametrize(
    "wrong", [OutputError("y has no rows"), np.ones((2, 4)), np.ones((2, 3), np.float32)]
)
def test_outputs_that_cannot_be_kept_stop_no_item(wrong: Any) -> None:
    assert arrays_of(TWO, wrong, TWO) is None


def test_a_keeper_gives_up_where_there_are_too_many() -> None:
    assert arrays_of(TWO, TWO, most_bytes=50) is None


def test_a_full_disk_stops_no_item(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert arrays_of(TWO) is None
