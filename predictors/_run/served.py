"""Outputs of calls under load, to be compared with the outputs of the same inputs at rest.

They are copies, spread over all of the load: a framework may write the outputs of each call to the
same memory. Digests are taken when it is over.
"""

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from .repeats import digest_of, distance_of

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
        self._last = [(tuple(samples), outputs)]
        size = _size(outputs)
        if self._number % self._stride == 0 and size <= _MOST_BYTES // 2:
            held = (tuple(samples), [self._copy_of(array) for array in outputs])
            self._spread.append(held)
            self.bytes += size
            while len(self._spread) > _MOST_CALLS or self.bytes > _MOST_BYTES:
                self._spread = self._spread[::2]
                self._stride *= 2
                self.bytes = sum(_size(each) for _, each in self._spread)
            if self._spread[-1] is held:
                self._last = []
        self._number += 1

    @property
    def calls(self) -> List[Call]:
        """All that are held, each once."""
        return self._spread + self._last


class Told(NamedTuple):
    """A call that stands for others.

    ``usual`` is whether it gave what most calls of its samples did, and ``picks`` how many of the
    calls that were picked gave just this.
    """

    samples: Tuple[int, ...]
    outputs: Any
    usual: bool
    picks: int


class LoadCalls:
    """The calls of a load that are held, of which those of the same samples and outputs are one.

    ``held`` are they by sample, and ``differing`` those of them that gave something else than most
    calls of the same samples. ``count`` and ``others`` are both numbers of calls.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        found: Dict[Tuple[int, ...], Dict[int, List[Call]]] = {}
        for samples, outputs in calls:
            of_samples = found.setdefault(samples, {})
            of_samples.setdefault(digest_of(outputs), []).append((samples, outputs))
        each = found.values()
        self._found = [sorted(of_samples.values(), key=len, reverse=True) for of_samples in each]
        size = 1 + max((max(samples) for samples in found), default=-1)
        self.count = len(calls)
        self.others = 0
        self.held = [0] * size
        self.differing = [0] * size
        for usual, *others in self._found:
            differing = sum(map(len, others))
            self.others += differing
            for sample in usual[0][0]:
                self.held[sample] += len(usual) + differing
                self.differing[sample] += differing

    def most_telling(self) -> List[Told]:
        """Return a few calls: first those whose samples gave something else at another time.

        The farthest come first, as rounding may make each call another, otherwise those with NaN
        and then larger ones.
        """
        told = [
            (rank, Told(*same[0], same is of_samples[0], len(same)))
            for of_samples in self._found
            for rank, same in zip(_ranks(of_samples), of_samples)
        ]
        told.sort(key=lambda each: each[0], reverse=True)
        return [call for _, call in told[:_MOST_TOLD]]

    def fair(self, most: int) -> List[Told]:
        """Return up to ``most`` calls at even distances, half of them of ``others`` if so many."""
        usual = [(of_samples[0], True) for of_samples in self._found for _ in of_samples[0]]
        others = [
            (same, False) for of_samples in self._found for same in of_samples[1:] for _ in same
        ]
        few = min(len(others), max(most // 2, most - len(usual)))
        told: Dict[int, Told] = {}
        for same, is_usual in _spread(others, few) + _spread(usual, most - few):
            earlier = told.get(id(same))
            picks = earlier.picks + 1 if earlier else 1
            samples, outputs = same[0]
            told[id(same)] = Told(samples, outputs, is_usual, picks)
        return list(told.values())


def _spread(values, most):
    count = min(len(values), most)
    return [values[(2 * number + 1) * len(values) // (2 * count)] for number in range(count)]


def _ranks(of_samples):
    """Return what calls of the same samples are ranked by: the usual one as the farthest other."""
    samples, usual = of_samples[0][0]
    far = [distance_of(usual, same[0][1]) for same in of_samples[1:]]
    if far:
        return [(True, each, len(samples)) for each in [max(far)] + far]
    return [(False, float(_has_nan(usual)), len(samples))]


def _has_nan(outputs):
    import numpy

    arrays = [numpy.asarray(each) for each in outputs]
    return any(each.dtype.kind in "fc" and numpy.isnan(each).any() for each in arrays)


def _size(outputs):
    return sum(getattr(array, "nbytes", 0) for array in outputs)
