"""Outputs of repeated calls on the same batch: digests, and a few whole ones that differ.

Digests are taken between turns, outside of all timed regions.
"""

import zlib

MOST_BYTES = 4 << 20
"""Bytes of outputs that are held and read after a turn, but at least the outputs of a call."""
_MOST_KEPT = 8
_MOST_HELD = 1 << 18  # bytes of the last outputs on batches that gave different ones
_MOST_DIGESTS = 64  # of a batch; what it holds may not grow with the calls


class Repeats:
    """The digests of calls by batch.

    ``calls`` were digested. ``kept`` has the batch and the outputs of a few calls that gave
    something else than most calls on their batch had: those farthest from both calls before, as
    rounding may make each call another.
    """

    def __init__(self):
        self.calls = 0
        self.kept = []
        self._far = []  # how far each that is kept is from the calls before
        self._last = {}
        self._held = 0
        self._counts = {}
        self._others = 0  # calls whose digests are not held

    @property
    def differing(self):
        """The number of calls that gave something else than most calls on the same batch."""
        counts = [list(counts.values()) for counts in self._counts.values()]
        return self._others + sum(sum(each) - max(each) for each in counts)

    def add(self, first, outputs):
        """Take the last outputs of a turn over batches, of which number ``first`` came first."""
        size = 0
        for place, output in enumerate(outputs):
            if output is None or size >= MOST_BYTES:
                continue
            size += size_of(output)
            self._add((first + place) % len(outputs), output)

    def _add(self, batch, output):
        digest = digest_of(output)
        counts = self._counts.setdefault(batch, {})
        usual = max(counts, key=counts.get) if counts else digest
        if digest != usual or len(counts) > 1:
            before = self._last.get(batch, ())
            far = min([distance_of(each, output) for each in before] or [0.0])
            if digest != usual:  # the first may be the wrong one
                self._keep(far, batch, output)
            self._hold(batch, output)
        if digest in counts or len(counts) < _MOST_DIGESTS:
            counts[digest] = counts.get(digest, 0) + 1
        else:
            self._others += 1
        self.calls += 1

    def _keep(self, far, batch, output):
        if len(self.kept) == _MOST_KEPT:
            least = min(range(_MOST_KEPT), key=self._far.__getitem__)
            if far <= 2 * self._far[least]:
                return
            del self.kept[least], self._far[least]
        self.kept.append((batch, _copy(output)))
        self._far.append(far)

    def _hold(self, batch, output):
        """Hold the outputs of the last two calls on a batch, if there is room."""
        last = self._last.pop(batch, [])
        self._held -= sum(map(size_of, last))
        if self._held + 2 * size_of(output) <= _MOST_HELD:
            self._last[batch] = last[-1:] + [_copy(output)]
            self._held += sum(map(size_of, self._last[batch]))


def distance_of(before, after):
    """Return the largest difference as a share of the largest value, infinite for other forms."""
    import numpy

    largest = 0.0
    for a, b in zip(map(numpy.asarray, before), map(numpy.asarray, after)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.dtype.kind not in "fc" or not a.size:
            if not numpy.array_equal(a, b):
                return float("inf")
            continue
        with numpy.errstate(all="ignore"):
            far = float(numpy.abs(a - b).max() / numpy.abs(a).max())
        if not numpy.array_equal(a, b):
            largest = max(largest, far if far == far else float("inf"))
    return largest


def _copy(output):
    import numpy

    return [numpy.array(array) for array in output]


def size_of(output):
    """Return the bytes of a call's outputs."""
    return sum(getattr(array, "nbytes", 0) for array in output)


def digest_of(arrays):
    """Return a number that tells outputs apart."""
    value = 0
    for array in arrays:
        value = zlib.crc32(_bytes_of(array), value)
    return value


def _bytes_of(array):
    import numpy

    if not hasattr(array, "dtype"):
        return repr(array).encode()
    if array.dtype.hasobject:
        return repr(array.tolist()).encode()  # that of an array leaves out all but the ends
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
