"""Outputs of a model for all inputs, kept for the items of a session that need the same ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_mlms.core.errors import OutputError
from pytest_mlms.core.records import Kind
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.rows import BatchRows, RowFiles
from pytest_mlms.provide.cases import Case

_MOST_BYTES = 2 << 30
"""Bytes that are kept for items to come, of all outputs together."""


@dataclass(frozen=True, eq=False)
class KeptOutputs:
    """The outputs of a model for all ``inputs``, N rows each, by name.

    ``predictor`` is the one that computed them, whose agent may have ended, and ``nodeid`` and
    ``kind`` are of the item that asked it to.
    """

    arrays: Mapping[str, Array]
    inputs: Inputs
    predictor: Predictor
    nodeid: str
    kind: Kind

    @property
    def bytes(self) -> int:
        """The size of all arrays."""
        return sum(values.nbytes for values in self.arrays.values())

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Yield the rows of some outputs in the batches that they were computed in."""
        size = self.inputs.batch_size
        for first in range(0, len(self.arrays[names[0]]), size):
            rows = slice(first, first + size)
            yield {name: np.asarray(self.arrays[name][rows]) for name in names}


def outputs_key(case: Case) -> Hashable | None:
    """Return everything that the outputs of a case for its dataset depend on.

    None for a manifest without a dataset, whose random inputs depend on the model that they are
    drawn for.
    """
    manifest = case.loaded.manifest
    if manifest.dataset is None:
        return None
    return (case.setting, case.batch_size, manifest.dataset.sha256, repr(manifest.inputs))


class OutputsStore:
    """Outputs by their key; those that were used longest ago go first once there are too many."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._kept: dict[Hashable, KeptOutputs] = {}

    def get(self, key: Hashable | None) -> KeptOutputs | None:
        """Return the outputs that are kept for a key, None where there are none."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept[key] = kept
        return kept

    def keep(self, key: Hashable | None, outputs: KeptOutputs) -> None:
        """Keep outputs for items to come, as far as there is room; without a key for none."""
        if key is None:
            return
        self._kept.pop(key, None)
        self._kept[key] = outputs
        size = sum(kept.bytes for kept in self._kept.values())
        while size > self.most_bytes:
            oldest = next(iter(self._kept))
            size -= self._kept.pop(oldest).bytes


class OutputsKeeper:
    """Collects the outputs of an item that needs one of them only, for those that need them all.

    It gives up where they can't be kept: an item that needs them computes them again, and tells
    what is wrong with them.
    """

    def __init__(self, names: list[str], most_bytes: int) -> None:
        self._files: RowFiles | None = RowFiles(names)
        self._most_bytes = most_bytes

    def add(self, batch: BatchRows) -> None:
        """Keep the outputs of a batch."""
        if self._files is None:
            return
        try:
            self._files.add(batch)
        except (OSError, OutputError):
            self._files = None
            return
        if self._files.bytes > self._most_bytes:
            self._files = None

    def arrays(self) -> Mapping[str, Array] | None:
        """Return all outputs, N rows each; None where they could not be kept."""
        if self._files is None:
            return None
        try:
            return self._files.mapped()
        except OSError:
            return None
