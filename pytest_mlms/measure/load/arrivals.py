"""Arrivals of queries, as LoadGen draws them or as a file has them, and the order of samples.

The random numbers are C++'s: the generator is std::mt19937. Integers and shuffles are those of
GNU's libstdc++, whose ``uniform_int_distribution`` and ``shuffle`` (bits/uniform_int_dist.h,
bits/stl_algo.h) LoadGen's wheels for Linux use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, MutableSequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.scenarios import HIGHEST_RATE, LOWEST_RATE

OUTPUTS = 2**32
"""Different outputs of the generator: 0 to one less."""

_BLOCK = 1024  # outputs that single draws take from the generator at a time


class MersenneTwister:
    """The outputs of std::mt19937 in their order, and what libstdc++ makes of them."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed % OUTPUTS)
        self._drawn: list[int] = []  # the next one is the last

    def outputs(self, count: int) -> NDArray[np.uint64]:
        """Return the next ``count`` outputs."""
        left = self._drawn[-count:] if count else []
        del self._drawn[len(self._drawn) - len(left) :]
        first = np.array(left[::-1], np.uint64)
        return np.concatenate([first, self._generated(count - len(left))])

    def _generated(self, count: int) -> NDArray[np.uint64]:
        """Return outputs of the generator itself, which RandomState passes on for this range."""
        return self._state.randint(0, OUTPUTS, count, np.uint32).astype(np.uint64)

    def _output(self) -> int:
        if not self._drawn:
            self._drawn = self._generated(_BLOCK)[::-1].tolist()
        return self._drawn.pop()

    def below(self, end: int) -> int:
        """Return an integer from 0 to ``end`` - 1, for an end of 1 to 2**32.

        Lemire 2019, "Fast Random Integer Generation in an Interval", ACM Transactions on Modeling
        and Computer Simulation 29:3.
        """
        if end == OUTPUTS:
            return self._output()
        product = self._output() * end
        if product % OUTPUTS < end:
            least = OUTPUTS % end
            while product % OUTPUTS < least:
                product = self._output() * end
        return product // OUTPUTS

    def integers(self, end: int, count: int) -> NDArray[np.int64]:
        """Return ``count`` integers as ``below`` draws them one by one."""
        found: list[NDArray[np.uint64]] = []
        missing = count
        least = OUTPUTS % end
        while missing:
            products = self.outputs(missing) * np.uint64(end)
            accepted = products[products % np.uint64(OUTPUTS) >= least]
            found.append(accepted >> np.uint64(32))
            missing -= len(accepted)
        return np.concatenate([np.empty(0, np.uint64), *found]).astype(np.int64)

    def shuffle(self, values: MutableSequence[Any]) -> None:
        """Shuffle a sequence in place as std::shuffle does, with two positions from a draw."""
        count = len(values)
        if count == 0:
            return
        if (OUTPUTS - 1) // count < count:
            self._shuffle_one_by_one(values)
            return
        index = 1
        if count % 2 == 0:
            _swap(values, index, self.below(2))
            index += 1
        while index < count:
            drawn = self.below((index + 1) * (index + 2))
            first, second = divmod(drawn, index + 2)
            _swap(values, index, first)
            _swap(values, index + 1, second)
            index += 2

    def _shuffle_one_by_one(self, values: MutableSequence[Any]) -> None:
        """Shuffle a sequence that is too long for pairs of positions."""
        for index in range(1, len(values)):
            _swap(values, index, self.below(index + 1))


def _swap(values: MutableSequence[Any], one: int, other: int) -> None:
    values[one], values[other] = values[other], values[one]


_SECOND = 1_000_000_000
_AT_A_TIME = 4096  # gaps that are drawn, or rows that are read
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
    low, high = generator.outputs(2 * _AT_A_TIME).reshape(_AT_A_TIME, 2).T.astype(np.float64)
    uniform = (low + high * OUTPUTS) / float(OUTPUTS) ** 2
    rest = 1 - np.minimum(uniform, np.nextafter(1.0, 0.0))
    logarithms = np.fromiter(map(math.log, rest.tolist()), np.float64, _AT_A_TIME)
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
        if len(block) == _AT_A_TIME:
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


def loaded_samples(count: int, seed: int) -> NDArray[np.int64]:
    """Return the samples that a performance run loads, in their order: the first ``count``.

    ``seed`` is LoadGen's ``qsl_rng_seed``. Further samples of a library are never in such a run.
    """
    order = list(range(count))
    MersenneTwister(seed).shuffle(order)
    return np.array(order, np.int64)


def sample_order(
    loaded: NDArray[np.int64],
    queries: int,
    seed: int,
    *,
    least: int,
    samples_per_query: int = 1,
) -> NDArray[np.int64]:
    """Return the samples of each query: an array of queries x ``samples_per_query``.

    ``loaded`` are the samples that are loaded, ``seed`` is LoadGen's ``sample_index_rng_seed``, and
    ``least`` its ``min_query_count``. For MultiStream the samples of a query follow each other
    among those that are loaded, of which the first follow the last.

    Before it draws, LoadGen shuffles for two other ways to choose samples: an accuracy run's, and
    one that goes through all samples alike. They move its generator on, although no query of a
    performance run uses them.
    """
    generator = MersenneTwister(seed)
    count = len(loaded)
    generator.shuffle(list(range(0, count, samples_per_query)))
    padded = count + samples_per_query - 1
    for _ in range(0, least, padded):
        generator.shuffle(list(range(padded)))
    first = generator.integers(count, queries)
    positions = first[:, np.newaxis] + np.arange(samples_per_query)
    return np.take(loaded, positions % count)
