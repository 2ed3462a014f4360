"""The batches that rounds and processes are timed with: drawn anew for each, in the workload's mix.

Inputs of a dataset are drawn without replacement until all were taken, in groups of one shape each,
as latency depends on the shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np

from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.inputs import known_axes, random_batch
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.npz import StoredRows
from pytest_mlms.provide.cases import Case

Shape = tuple[tuple[int, ...], ...]
"""The shapes of all inputs of an element."""

MOST_GROUPS = 6
"""Groups of a dataset; more shapes are joined by their sizes."""

_SAMPLE = 512  # elements whose shapes are looked at
_FILES = 64  # of images and sounds, which take longer


@dataclass(frozen=True)
class ShapeGroups:
    """Groups of elements by shape.

    ``names`` of the groups have the smallest first, and ``members`` are their elements. ``shapes``
    has the shapes of the elements that were looked at, which are all ``members``; it is empty where
    all elements are of one shape. ``largest_bytes`` is the size of the largest.
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

    Where elements may differ in shape, groups are of a sample, drawn by ``seed``. Raises
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
    """Return whether all elements surely have the same shapes, as far as is known beforehand."""
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


Batch = Mapping[str, Array]
Elements = tuple[int, ...]
"""The numbers of the elements of a batch in its dataset."""

_BATCHES = 8  # of a draw, where they fit into _BYTES
_BYTES = 64 << 20
_MOST_BATCHES = 64  # where they fit into _MORE_BYTES, since a process has all of them in its memory
_MORE_BYTES = 4 << 20
_LONGEST_CYCLE = 200
_MOST_SEEDS = 1 << 32
_SHOWN = 2  # names of a batch's elements


class Mix(NamedTuple):
    """The groups of a workload's inputs by shape: their names, and their shares of all inputs."""

    names: tuple[str, ...] = ("",)
    shares: tuple[float, ...] = (1.0,)


ONE_GROUP = Mix()
"""The mix of inputs that have one shape."""


@dataclass(frozen=True, eq=False)
class TimedBatches(Sequence[Batch]):
    """Batches of one draw.

    ``elements`` and ``groups`` tell of each batch what it is made of and its group in the ``mix``.
    ``cycle`` is the order of calls, by the numbers of batches: each group has its share in it, and
    number 0 comes first. Batches that aren't in it are timed by themselves. ``names`` are what
    messages call the elements.
    """

    batches: Sequence[Batch]
    elements: Sequence[Elements]
    groups: Sequence[int]
    mix: Mix
    cycle: Sequence[int]
    names: Sequence[Sequence[str]] = ()

    def __len__(self) -> int:
        return len(self.batches)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Batch]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.batches[index]


def mix_of(batches: Sequence[Batch]) -> Mix:
    """Return the mix of batches; others than timed ones are of one group."""
    return batches.mix if isinstance(batches, TimedBatches) else ONE_GROUP


def cycle_of(batches: Sequence[Batch]) -> Array:
    """Return the order of calls over batches, by their numbers."""
    return np.asarray(
        batches.cycle if isinstance(batches, TimedBatches) else range(len(batches)), int
    )


def groups_of(batches: Sequence[Batch]) -> Array:
    """Return the number of each batch's group."""
    return np.asarray(
        batches.groups if isinstance(batches, TimedBatches) else [0] * len(batches), int
    )


def elements_of(batches: Sequence[Batch]) -> Sequence[Elements]:
    """Return the elements of each batch; () for batches that are not a dataset's."""
    return batches.elements if isinstance(batches, TimedBatches) else [()] * len(batches)


def watched_of(batches: Sequence[Batch]) -> list[int]:
    """Return the numbers of the batches that are no part of the cycle."""
    return sorted(set(range(len(batches))) - set(cycle_of(batches).tolist()))


def first_batch(dataset: Dataset, size: int, seed: int) -> Batch:
    """Return the batch that is the first of each draw by a manifest's ``seed``."""
    return TimedInputs(dataset, size, seed, run_seed=0)()[0]


class TimedInputs:
    """Draws of batches of ``size`` from a dataset; each call of it returns the next one.

    The first batch is always the same, by the manifest's ``seed``, so that its outputs and the
    first inference can be compared between processes. All others are drawn by the ``run_seed``,
    too. What is in ``watch`` is added to each draw.
    """

    def __init__(self, dataset: Dataset, size: int, seed: int, run_seed: int) -> None:
        dataset.check_size(size)
        self.watch: Sequence[Elements] = ()
        self._dataset = dataset
        self._size = size
        self._groups: ShapeGroups = group_by_shape(dataset, seed)
        self._random = np.random.default_rng([seed, run_seed])
        first_group = int(np.argmax(self._groups.mix[1]))
        members = self._groups.members[first_group]
        self._first = self._taken(np.random.default_rng(seed).permutation(members).tolist())
        self._first_group = first_group
        self._left: list[list[int]] = [[] for _ in self._groups.members]

    @property
    def is_mixed(self) -> bool:
        """True if the elements have several shapes."""
        return len(self._groups.members) > 1

    def __call__(self, predictor: Predictor | None = None) -> TimedBatches:
        """Return the next draw; raises DatasetError for elements that can't be prepared."""
        mix = Mix(*self._groups.mix)
        counts = self._counts(mix.shares)
        drawn: list[tuple[int, Elements]] = [(self._first_group, self._first)]
        counts[self._first_group] -= 1
        for group, count in enumerate(counts):
            drawn += [(group, self._next(group)) for _ in range(count)]
        cycle = _cycle([group for group, _ in drawn], mix.shares)
        drawn += [(self._groups.group_of(each[0]), each) for each in self.watch]
        return TimedBatches(
            [self._dataset.batch(elements) for _, elements in drawn],
            [elements for _, elements in drawn],
            [group for group, _ in drawn],
            mix,
            cycle,
            [[self._dataset.element_name(index) for index in batch] for _, batch in drawn],
        )

    def slow_lines(self, slow: Mapping[Elements, tuple[float, float]]) -> list[str]:
        """Return a line for each batch that got slower, with the seconds of both sides."""
        lines = []
        for elements, (a, b) in slow.items():
            names = ", ".join(self._dataset.element_name(index) for index in elements[:_SHOWN])
            more = f" and {len(elements) - _SHOWN} more" if len(elements) > _SHOWN else ""
            times = f"{format_quantity(a, 's')} -> {format_quantity(b, 's')}"
            lines.append(f"{names}{more}: {times}")
        return lines

    def _counts(self, shares: Sequence[float]) -> list[int]:
        """Return how many batches of each group to draw, one at least."""
        size = max(1, self._size * self._groups.largest_bytes)
        count = max(min(_BATCHES, _BYTES // size), min(_MOST_BATCHES, _MORE_BYTES // size))
        count = min(count, max(1, len(self._dataset) // self._size))
        exact = [share * count for share in shares]
        counts = [max(1, int(each)) for each in exact]
        by_rest = sorted(range(len(exact)), key=lambda group: exact[group] - counts[group])
        while sum(counts) < count and by_rest:
            counts[by_rest.pop()] += 1
        return counts

    def _next(self, group: int) -> Elements:
        """Return the next batch of a group, which begins anew when all were taken."""
        left = self._left[group]
        if not left:
            left += self._random.permutation(self._groups.members[group]).tolist()
        return self._taken(left)

    def _taken(self, left: list[int]) -> Elements:
        """Take a batch of one shape from the end of ``left``, with repeated elements if few."""
        found = [left.pop()]
        shape = self._groups.shape_of(found[0])
        place = len(left) - 1
        while len(found) < self._size and place >= 0:
            if self._groups.shape_of(left[place]) == shape:
                found.append(left.pop(place))
            place -= 1
        return tuple(found[number % len(found)] for number in range(self._size))


class RandomInputs:
    """Draws of random batches for a model without a dataset, as ``TimedInputs`` are."""

    def __init__(self, case: Case, run_seed: int) -> None:
        self._case = case
        self._random = np.random.default_rng([case.loaded.manifest.evaluate.seed, run_seed])

    def __call__(self, predictor: Predictor) -> TimedBatches:
        """Return the next draw: a batch that is always the same, and others where they are small.

        Raises OutputError where the shape of an input is not known.
        """
        batches = [random_batch(predictor, self._case)]
        size = sum(array.nbytes for array in batches[0].values())
        for _ in range(1, min(_BATCHES, max(1, _MORE_BYTES // max(1, size)))):
            seed = int(self._random.integers(_MOST_SEEDS))
            batches.append(random_batch(predictor, self._case, seed))
        numbers = range(len(batches))
        return TimedBatches(batches, [()] * len(batches), [0] * len(batches), ONE_GROUP, numbers)


def _cycle(groups: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Return an order of calls over batches of these groups, in which each has its share.

    The groups are spread evenly, and batch 0 comes first.
    """
    members = [[n for n, group in enumerate(groups) if group == g] for g in range(len(shares))]
    length = max(len(each) / share for each, share in zip(members, shares, strict=True))
    length = min(max(length, len(groups)), _LONGEST_CYCLE)
    places: list[tuple[float, int]] = []
    for each, share in zip(members, shares, strict=True):
        count = max(len(each), round(share * length))
        places += [((k + 0.5) / count, each[k % len(each)]) for k in range(count)]
    order = [number for _, number in sorted(places)]
    begin = order.index(0)
    return order[begin:] + order[:begin]


def fill_caches(predictor: Predictor, batches: Sequence[Batch]) -> None:
    """Have a model compiled for each shape of the inputs."""
    cycle = cycle_of(batches)
    predictor.bind(batches, cycle.tolist())
    _, places = np.unique(groups_of(batches)[cycle], return_index=True)
    for place in places:
        predictor.turn(first=int(place))
