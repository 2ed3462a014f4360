"""Outputs of calls under load, to be compared with those of the same inputs at rest.

They are copies, spread over all of the load: a framework may write the outputs of each call to the
same memory. Digests are taken when it is over.
"""

from typing import Any, Dict, List, Sequence, Tuple

from .repeats import digest_of

Call = Tuple[Tuple[int, ...], Any]
"""The samples of a call, and its outputs."""

_MOST_CALLS = 512
_MOST_BYTES = 1 << 20
_MOST_TOLD = 8


class ServedCalls:
    """The calls of one instance: one of so many, as many as there is room for, and the last."""

    def __init__(self) -> None:
        import numpy

        self._copy_of = numpy.array
        self._spread: List[Call] = []
        self._last: List[Call] = []
        self._number = 0
        self._stride = 1
        self.bytes = 0  # of the outputs that are held beside the last ones

    def add(self, samples: Sequence[int], outputs: Any) -> None:
        """Take a call, which replaces the last one."""
        call = (tuple(samples), outputs)
        self._last = [call]
        size = _size(outputs)
        if self._number % self._stride == 0 and size <= _MOST_BYTES // 2:
            self._spread.append((call[0], [self._copy_of(array) for array in outputs]))
            self.bytes += size
            while len(self._spread) > _MOST_CALLS or self.bytes > _MOST_BYTES:
                self._spread = self._spread[::2]
                self._stride *= 2
                self.bytes = sum(_size(each) for _, each in self._spread)
        self._number += 1

    @property
    def calls(self) -> List[Call]:
        """All that are held; the last one may be among them twice."""
        return self._spread + self._last


def most_telling(calls: Sequence[Call]) -> List[Call]:
    """Return a few calls: first those whose samples gave something else at another time.

    Larger ones come first otherwise. There are none of the same samples and outputs.
    """
    found: Dict[Tuple[int, ...], Dict[int, Call]] = {}
    for samples, outputs in calls:
        found.setdefault(samples, {}).setdefault(digest_of(outputs), (samples, outputs))
    ranked = sorted(found.values(), key=_rank, reverse=True)
    return [call for of_samples in ranked for call in of_samples.values()][:_MOST_TOLD]


def _rank(of_samples):
    samples, _ = next(iter(of_samples.values()))
    return len(of_samples) > 1, len(samples)


def _size(outputs):
    return sum(getattr(array, "nbytes", 0) for array in outputs)
