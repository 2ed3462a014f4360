"""The samples that LoadGen's queries have, by its seeds (loadgen.cc of version 6.0.17)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.load.mersenne import MersenneTwister


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
