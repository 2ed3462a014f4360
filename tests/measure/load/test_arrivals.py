"""Tests of arrivals: properties of the Poisson process, and files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.load.arrivals import poisson_arrivals, read_arrivals

SECOND = 1_000_000_000


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


@given(st.floats(1, 10_000), st.integers(0, 2**64), st.integers(1, 50))
def test_arrivals_last_for_the_duration_and_no_longer(rate: float, seed: int, least: int) -> None:
    arrivals = poisson_arrivals(rate, seed, SECOND // 10, least)
    assert arrivals[0] == 0
    assert np.all(np.diff(arrivals) >= 0)
    assert len(arrivals) >= least
    assert arrivals[-1] >= SECOND // 10
    assert len(arrivals) == max(1, least) or arrivals[-2] < SECOND // 10


def test_gaps_are_exponential() -> None:
    gaps = np.diff(poisson_arrivals(1000, 1, 200 * SECOND, 1)) / SECOND
    assert gaps.mean() == pytest.approx(0.001, rel=0.01)
    assert gaps.std() == pytest.approx(0.001, rel=0.02)
    assert np.median(gaps) == pytest.approx(0.001 * np.log(2), rel=0.01)


def test_a_longer_run_begins_with_the_arrivals_of_a_shorter_one() -> None:
    short = poisson_arrivals(50_000, 7, 2 * SECOND, 1)
    longer = poisson_arrivals(50_000, 7, 4 * SECOND, 1)
    np.testing.assert_array_equal(longer[: len(short)], short)


@pytest.mark.parametrize("rate", [0, -1, 1e-9, 1e9, float("nan"), float("inf")])
def test_a_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"write 0\.001 to 1,000,000 /s"):
        poisson_arrivals(rate, 0, SECOND, 1)


def test_a_file_has_a_time_a_row_and_begins_at_zero(tmp_path: Path) -> None:
    path = written(tmp_path, "seconds,size\n10.5,3\n10.5\n11,2\n12.000000001,9")
    assert read_arrivals(path).tolist() == [0, 0, SECOND // 2, 1_500_000_001]


def test_a_file_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b'\xef\xbb\xbf"Seconds",\r\n"0.5"\r\n1.5,x\r\n')
    assert read_arrivals(path).tolist() == [0, SECOND]


def test_a_file_is_replayed_at_a_speed(tmp_path: Path) -> None:
    path = written(tmp_path, "0\n1\n3\n")
    assert read_arrivals(path, speed=2).tolist() == [0, SECOND // 2, 3 * SECOND // 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace.csv:1: no arrivals; write a time in seconds on each line"),
        ("seconds\n", "trace.csv:1: no arrivals"),
        ("0\n2\n1\n", "trace.csv:3: 1 s is before the row above; sort the arrivals by time"),
        ("0\n-1\n", "trace.csv:2: '-1' is no time; write seconds from 0, as in 0.25"),
        ("nan\n", "trace.csv:1: 'nan' is no time"),
        ("0\ninf\n", "trace.csv:2: 'inf' is no time"),
        ("0\n1e300\n", "trace.csv:2: '1e300' is no time"),
        ("0\n\n1\n", "trace.csv:2: an empty row; remove it"),
        ("0\nlater\n", "trace.csv:2: 'later' is no time"),
        ("time\n1\n", "trace.csv:1: 'time' is no time"),
    ],
)
def test_a_wrong_row_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MlmsError) as error:
        read_arrivals(written(tmp_path, text))
    assert message in str(error.value)


def test_a_file_that_is_missing_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match=r"trace\.csv: can't be read"):
        read_arrivals(tmp_path / "trace.csv")
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MlmsError, match=r"trace\.csv: can't be read"):
        read_arrivals(path)


def test_a_long_file_takes_little_more_memory_than_its_arrivals(tmp_path: Path) -> None:
    rows = 100_000
    path = written(tmp_path, "".join(f"{number / 1000:.3f}\n" for number in range(rows)))
    tracemalloc.start()
    arrivals = read_arrivals(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(arrivals) == rows
    assert peak < 3 * arrivals.nbytes + 1_000_000
