"""Outputs of repeated calls on the same batch: digests, and a few whole ones that differ.

Digests are taken between turns, outside of all timed regions.
"""

import zlib

_MOST_BYTES = 4 << 20  # that are read after a turn, but at least the outputs of a call
_MOST_KEPT = 8
_MOST_DIGESTS = 64  # of a batch; what it holds may not grow with the calls


class Repeats:
    """The digests of calls by batch.

    ``calls`` were digested. ``kept`` has the batch and the outputs of the first calls that gave
    something else than most calls on their batch had.
    """

    def __init__(self):
        self.calls = 0
        self.kept = []
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
            if output is None or size >= _MOST_BYTES:
                continue
            size += sum(getattr(array, "nbytes", 0) for array in output)
            self._add((first + place) % len(outputs), output)

    def _add(self, batch, output):
        import numpy

        digest = digest_of(output)
        counts = self._counts.setdefault(batch, {})
        usual = max(counts, key=counts.get) if counts else digest
        if digest != usual and len(self.kept) < _MOST_KEPT:  # the first may be the wrong one
            self.kept.append((batch, [numpy.array(array) for array in output]))
        if digest in counts or len(counts) < _MOST_DIGESTS:
            counts[digest] = counts.get(digest, 0) + 1
        else:
            self._others += 1
        self.calls += 1


def digest_of(arrays):
    """Return a number that tells outputs apart."""
    value = 0
    for array in arrays:
        value = zlib.crc32(_bytes_of(array), value)
    return value


def _bytes_of(array):
    import numpy

    if not hasattr(array, "dtype") or array.dtype.hasobject:
        return repr(array).encode()
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
