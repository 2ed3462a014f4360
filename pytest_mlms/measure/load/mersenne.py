"""Random numbers of C++'s standard library, as LoadGen draws them.

The generator is std::mt19937. Integers and shuffles are those of GNU's libstdc++, whose
``uniform_int_distribution`` and ``shuffle`` (bits/uniform_int_dist.h, bits/stl_algo.h) LoadGen's
wheels for Linux use.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
