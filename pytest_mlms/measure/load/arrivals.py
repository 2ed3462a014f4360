"""Arrivals of queries: LoadGen's Poisson process, and those of a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.scenarios import HIGHEST_RATE, LOWEST_RATE
from pytest_mlms.measure.load.mersenne import OUTPUTS, MersenneTwister

_SECOND = 1_000_000_000
_BLOCK = 4096  # gaps that are drawn, or rows that are read, at a time
_LAST = 2**62  # nanoseconds; sums of arrivals stay far from the end of int64
_HEADER = "seconds"


def poisson_arrivals(rate: float, seed: int, duration_ns: int, least: int) -> NDArray[np.int64]:
    """Return the nanoseconds from the start at which LoadGen's Server issues its queries.

    ``rate`` is in queries a second, ``seed`` is LoadGen's ``schedule_rng_seed``. The first query
    is at 0. There are at least ``least``, and the last one is the first at or after the duration,
    unless ``least`` asks for more. Raises ValueError for a rate outside of 0.001 to 1,000,000.

    loadgen.cc of mlcommons/inference (6.0.17) takes gaps from std::exponential_distribution,
    which is -ln(1 - u) / rate in libstdc++ with u = (a + b 2^32) / 2^64 of two outputs a and b of
    the generator, and cuts them to nanoseconds. The rate as scheduled isn't corrected.
    """
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise ValueError(f"a rate of {rate:g} /s; write {LOWEST_RATE:g} to {HIGHEST_RATE:,.0f} /s")
    generator = MersenneTwister(seed)
    blocks = [np.zeros(1, np.int64)]
    count = 1
    while count < least or blocks[-1][-1] < duration_ns:
        block = blocks[-1][-1] + np.cumsum(_gaps(generator, rate))
        blocks.append(block)
        count += len(block)
    arrivals = np.concatenate(blocks)
    first_after = int(np.searchsorted(arrivals, duration_ns))
    return arrivals[: max(least, first_after + 1)]


def _gaps(generator: MersenneTwister, rate: float) -> NDArray[np.int64]:
    """Return a block of gaps in nanoseconds.

    The logarithm is the C library's, as numpy's differs in the last bit between processors.
    """
    low, high = generator.outputs(2 * _BLOCK).reshape(_BLOCK, 2).T.astype(np.float64)
    uniform = (low + high * OUTPUTS) / float(OUTPUTS) ** 2
    rest = 1 - np.minimum(uniform, np.nextafter(1.0, 0.0))
    logarithms = np.fromiter(map(math.log, rest.tolist()), np.float64, _BLOCK)
    return (-logarithms / rate * _SECOND).astype(np.int64)


def read_arrivals(path: Path, speed: float = 1.0) -> NDArray[np.int64]:
    """Return the nanoseconds from the start of the arrivals in a file, ``speed`` times as fast.

    A row of the file is the time of a query in seconds, in ascending order; the first query is at
    0, whenever it was. The first row may be the header ``seconds``. Of further columns nothing is
    read. Raises MlmsError with the file and line of a row that is no such time.
    """
    try:
        with path.open(encoding="utf-8-sig") as lines:
            blocks = list(_blocks(path, lines))
    except (OSError, UnicodeDecodeError) as error:
        raise MlmsError(f"{path}: can't be read ({error}); name a CSV file of arrivals") from error
    if not blocks:
        raise MlmsError(f"{path}:1: no arrivals; write a time in seconds on each line")
    arrivals = np.concatenate(blocks)
    arrivals -= arrivals[0]
    return arrivals if speed == 1 else (arrivals / speed).astype(np.int64)


def _blocks(path: Path, lines: Iterable[str]) -> Iterator[NDArray[np.int64]]:
    """Yield the arrivals in blocks, in nanoseconds."""
    block: list[int] = []
    last = 0
    for number, line in enumerate(lines, start=1):
        text = line.partition(",")[0].strip().strip('"')
        if number == 1 and text.lower() == _HEADER:
            continue
        time = _nanoseconds(path, number, text)
        if time < last:
            raise MlmsError(
                f"{path}:{number}: {text} s is before the row above; sort the arrivals by time"
            )
        last = time
        block.append(time)
        if len(block) == _BLOCK:
            yield np.array(block, np.int64)
            block = []
    if block:
        yield np.array(block, np.int64)


def _nanoseconds(path: Path, number: int, text: str) -> int:
    """Return the time of a row in nanoseconds."""
    if not text:
        raise MlmsError(f"{path}:{number}: an empty row; remove it, or write a time in seconds")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds * _SECOND < _LAST:
        raise MlmsError(
            f"{path}:{number}: {text[:40]!r} is no time; write seconds from 0, as in 0.25"
        )
    return round(seconds * _SECOND)
