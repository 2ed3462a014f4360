"""The groups of a dataset's inputs by their shapes, which latency depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_mlms.measure.evaluate.random_inputs import known_axes
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.stored_rows import StoredRows

Shape = tuple[tuple[int, ...], ...]
"""The shapes of all inputs of an element."""

MOST_GROUPS = 6
"""Groups of a dataset; more shapes are joined by their sizes."""

_SAMPLE = 512  # elements whose shapes are looked at
_FILES = 64  # of images and sounds, which take longer


@dataclass(frozen=True)
class ShapeGroups:
    """Groups of elements by shape.

    ``names`` are those of the groups, the smallest first, and ``members`` their elements.
    ``shapes`` has those of the elements that were looked at, which are all ``members``; it is empty
    where all elements are of one shape. ``largest_bytes`` is the size of the largest.
    """

    names: tuple[str, ...]
    members: tuple[Sequence[int], ...]
    shapes: Mapping[int, Shape]
    largest_bytes: int

    @property
    def mix(self) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """The names of the groups, and their shares of the elements."""
        total = sum(map(len, self.members))
        return self.names, tuple(len(each) / total for each in self.members)

    def shape_of(self, index: int) -> Shape:
        """Return the shape of an element; () where all have the same."""
        return self.shapes.get(index, ())

    def group_of(self, index: int) -> int:
        """Return the number of an element's group."""
        for number, each in enumerate(self.members):
            if index in each:
                return number
        raise ValueError(f"element {index} is in no group")


def group_by_shape(dataset: Dataset, seed: int = 0) -> ShapeGroups:
    """Return the groups of a dataset.

    Where elements may differ in shape, groups are those of a sample, drawn by ``seed``. Raises
    DatasetError for an element that can't be prepared.
    """
    everything = range(len(dataset))
    if _is_uniform(dataset):
        size = sum(array.nbytes for array in dataset.batch([0]).values())
        return ShapeGroups(("",), (everything,), {}, size)
    is_slow = any(spec.type in ("image", "audio") for spec in dataset.inputs)
    count = min(len(dataset), _FILES if is_slow else _SAMPLE)
    sample = np.random.default_rng(seed).permutation(len(dataset))[:count].tolist()
    shapes: dict[int, Shape] = {}
    largest = 0
    for index in sample:
        arrays = dataset.batch([index]).values()
        shapes[index] = tuple(array.shape for array in arrays)
        largest = max(largest, sum(array.nbytes for array in arrays))
    if len(set(shapes.values())) == 1:
        return ShapeGroups(("",), (everything,), {}, largest)
    names, members = _grouped(shapes)
    return ShapeGroups(names, members, shapes, largest)


def alike_elements(dataset: Dataset, count: int, seed: int = 0) -> list[int]:
    """Return the first elements that have one shape, of the largest group; at most ``count``."""
    groups = group_by_shape(dataset, seed)
    members = max((sorted(group) for group in groups.members), key=len)
    shape = groups.shape_of(members[0])
    return [index for index in members if groups.shape_of(index) == shape][:count]


def _is_uniform(dataset: Dataset) -> bool:
    """Return whether all elements surely have the same shapes, by what is known beforehand."""
    for spec in dataset.inputs:
        if spec.is_state:
            continue
        axes = known_axes(spec, 1)
        is_known = bool(axes) and None not in axes
        rows = dataset.elements[spec.name]
        is_array = isinstance(rows, StoredRows) or (
            isinstance(rows, np.ndarray) and rows.dtype.kind != "O"
        )
        if not is_known and not is_array:
            return False
    return True


def _grouped(shapes: Mapping[int, Shape]) -> tuple[tuple[str, ...], tuple[Sequence[int], ...]]:
    """Return the names and the members of groups, by size: of one shape each, if they are few."""
    distinct = sorted(set(shapes.values()), key=lambda shape: (_values(shape), shape))
    labels = _labels(distinct)
    names = []
    members = []
    for part in _parts(distinct, shapes):
        low = labels[part[0]]
        high = labels[part[-1]]
        names.append(low if low == high else f"{low}-{high}")
        members.append([index for index, shape in shapes.items() if shape in part])
    return tuple(names), tuple(members)


def _parts(distinct: Sequence[Shape], shapes: Mapping[int, Shape]) -> list[list[Shape]]:
    """Return shapes one by one, or joined to MOST_GROUPS of about as many elements each."""
    if len(distinct) <= MOST_GROUPS:
        return [[shape] for shape in distinct]
    sizes = sorted(_values(shape) for shape in shapes.values())
    ends = [sizes[len(sizes) * k // MOST_GROUPS - 1] for k in range(1, MOST_GROUPS + 1)]
    parts: list[list[Shape]] = [[] for _ in ends]
    for shape in distinct:
        number = int(np.searchsorted(ends, _values(shape)))
        parts[number].append(shape)
    return [part for part in parts if part]


def _values(shape: Shape) -> int:
    return sum(int(np.prod(axes)) for axes in shape)


def _labels(distinct: Sequence[Shape]) -> dict[Shape, str]:
    """Return a name for each shape: the sizes of the axes that differ, such as 16 or 224x320."""
    flat = [[size for axes in shape for size in axes] for shape in distinct]
    if len({len(sizes) for sizes in flat}) == 1:
        columns = dict.fromkeys(zip(*flat, strict=True))  # a mask is as long as its tokens
        varying = [column for column in columns if len(set(column)) > 1]
        flat = [[column[row] for column in varying] for row in range(len(distinct))]
    names = ["x".join(map(str, sizes)) for sizes in flat]
    return dict(zip(distinct, names, strict=True))
