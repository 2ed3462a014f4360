"""Inputs that models are evaluated with: a dataset's, or random ones for a manifest without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.core.errors import OutputError
from pytest_mlms.core.memory import shortage
from pytest_mlms.manifest.schema import BATCH, Input
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.pipeline import Dataset, start_state
from pytest_mlms.provide.cases import Case

_DRAWN_BYTES = 8  # of a value before it has its type

Axes = Sequence[int | None]

_RESIZING = ("resize", "crop", "pad")
"""Steps after which images have another size."""


def draw_array(tensor: Tensor, spec: Input, size: int, random: np.random.Generator) -> Array:
    """Return random values for a batch of ``size``, in the type of the model's input.

    They are uniform within the manifest's ``range``. Without one, floats are standard normal, uint8
    is uniform, and other integers are 0 or 1, which fits masks and most vocabularies. Raises
    OutputError where the shape is not known.
    """
    shape = input_shape(tensor, spec, size)
    if tensor.dtype == "string":
        raise OutputError(f"input {tensor.name!r} takes texts; add a dataset that has them")
    dtype = np.dtype(tensor.dtype)
    _check_memory(tensor.name, shape, dtype)
    low, high = spec.range or _usual_range(dtype)
    if dtype.kind in "biu":
        values: Array = random.integers(int(low), int(high), shape, endpoint=True)
    elif spec.range:
        values = random.uniform(low, high, shape)
    else:
        values = random.standard_normal(shape)
    return np.asarray(values).astype(dtype)


def edge_batches(
    batch: Mapping[str, Array], specs: Sequence[Input], tensors: Sequence[Tensor]
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield batches at the edges of what a model may be asked, each with what messages call it.

    ``batch`` is a random one, whose shapes they have. Values are at the ends of their ranges, where
    these are free denormal or of large magnitude, and axes are as short as they can be.
    """
    by_name = {spec.name: spec for spec in specs}
    for label, edge in _EDGES.items():
        found = {}
        for name, values in batch.items():
            spec = by_name[name]
            found[name] = values if spec.is_state else edge(values, spec)
        if any(not np.array_equal(found[name], values) for name, values in batch.items()):
            yield label, found
    short = {tensor.name: _shortened(batch[tensor.name], tensor, by_name) for tensor in tensors}
    if any(values.shape != batch[name].shape for name, values in short.items()):
        yield "inputs whose free axes are 1 long", short


def _shortened(values: Array, tensor: Tensor, specs: Mapping[str, Input]) -> Array:
    """Return values with the axes that the model leaves free cut to 1, but for the batch."""
    written = specs[tensor.name].shape
    if written is None or specs[tensor.name].is_state or len(tensor.shape) != len(written):
        return values
    kept = []
    for size, axis in zip(tensor.shape, written, strict=True):
        kept.append(slice(1 if size is None and axis != BATCH else None))
    return np.ascontiguousarray(values[tuple(kept)])


def _zeros(values: Array, spec: Input) -> Array:
    low, high = spec.range or _usual_range(values.dtype)
    return np.full_like(values, min(max(0, low), high))


def _least(values: Array, spec: Input) -> Array:
    if not spec.range and values.dtype.kind == "f":
        return values
    return np.full_like(values, (spec.range or _usual_range(values.dtype))[0])


def _most(values: Array, spec: Input) -> Array:
    if not spec.range and values.dtype.kind == "f":
        return values
    return np.full_like(values, (spec.range or _usual_range(values.dtype))[1])


def _denormal(values: Array, spec: Input) -> Array:
    if spec.range or values.dtype.kind != "f":
        return values
    denormal: Array = values * (np.finfo(values.dtype).tiny / 8)
    return denormal.astype(values.dtype)


def _large(values: Array, spec: Input) -> Array:
    if spec.range or values.dtype.kind != "f":
        return values
    return (values * (_LARGE if values.dtype.itemsize > 2 else _LARGE_SHORT)).astype(values.dtype)


LARGE = "inputs of large magnitude"
_LARGE = 1e4
_LARGE_SHORT = 1e2  # of float16
_EDGES: dict[str, Callable[[Array, Input], Array]] = {
    "inputs of zeros": _zeros,
    "inputs at the lower end of the range": _least,
    "inputs at the upper end of the range": _most,
    "denormal inputs": _denormal,
    LARGE: _large,
}
"""Inputs at an edge, as messages call them -> how they are made of random ones."""


def _check_memory(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise OutputError for values that would not fit into the memory that is free.

    They are drawn with 64 bits each, and then there twice: on this side and in the agent.
    """
    missing = shortage(math.prod(shape) * (_DRAWN_BYTES + 2 * dtype.itemsize))
    if missing:
        sizes = " x ".join(map(str, shape))
        problem = f"random values of {dtype} {sizes} for input {name!r} take {missing}"
        raise OutputError(f"{problem}; write smaller batch_sizes, or a smaller shape")


def _usual_range(dtype: Any) -> tuple[float, float]:
    """Return the range of integers where the manifest says none."""
    if dtype == np.uint8:
        return 0, 255
    return 0, 1


def input_shape(tensor: Tensor, spec: Input, size: int) -> tuple[int, ...]:
    """Return the shape of a batch: the manifest's ``shape``, else the model's.

    Free axes of the model's are the batch, if it is the first, or those of the images that the
    input's steps make. Raises OutputError where an axis stays free.
    """
    if spec.shape is not None:
        return tuple(_sizes(spec.shape, size))
    images = _image_axes(spec)
    declared: Axes = tensor.shape or images
    if len(images) != len(declared):
        images = [None] * len(declared)
    shape = []
    for model_axis, image_axis in zip(declared, images, strict=True):
        shape.append(image_axis if model_axis is None else model_axis)
    if not shape or None in shape[1:]:
        found = f"has free axes, {tensor.shape}" if shape else "has no known shape"
        raise OutputError(
            f"input {tensor.name!r} {found}; add '{_example(shape)}' with your sizes to it in the "
            f"manifest ('shape: []' for a single number), or add a dataset"
        )
    first = size if shape[0] is None else shape[0]
    if first != size and size > 1:
        raise OutputError(
            f"input {tensor.name!r} has {first} rows, and batch_sizes {size}; write the model's "
            f"size there, or say with 'shape: […, batch, …]' which axis is the batch"
        )
    sizes = [axis for axis in shape[1:] if axis is not None]
    return (first, *sizes)


def _sizes(shape: Sequence[int | str], size: int) -> list[int]:
    """Return the sizes of a manifest's shape for a batch of ``size``."""
    sizes = []
    for axis in shape:
        if isinstance(axis, str) and axis != BATCH:
            raise OutputError(f"nothing tells the size of the axis {axis!r}; write it in a shape")
        sizes.append(size if axis == BATCH else int(axis))
    return sizes


def known_axes(spec: Input, size: int) -> Axes:
    """Return the axes that the manifest tells of a batch, with None for those that it doesn't.

    Returns [] where it tells nothing.
    """
    if spec.named_axes:
        return [
            axis if isinstance(axis, int) else None
            for axis in spec.sized({BATCH: size}).shape or ()
        ]
    if spec.shape is not None:
        return _sizes(spec.shape, size)
    images = list(_image_axes(spec))
    if images:
        images[0] = size
    return images


def _example(shape: Axes) -> str:
    """Return an example of a manifest's shape: the batch is the first free axis."""
    sizes = [str(axis or "?") for axis in shape] or ["batch", "3"]
    if None in shape:
        sizes[shape.index(None)] = BATCH
    return f"shape: [{', '.join(sizes)}]"


def _image_axes(spec: Input) -> Axes:
    """Return the axes of the images that the steps make, the batch first; None for an unknown one.

    An input that is no image has none.
    """
    if spec.type != "image":
        return []
    height: int | None = None
    width: int | None = None
    channels: int | None = None
    for step in spec.steps:
        if step.name == "decode":
            channels = 1 if step.parameters.color == "L" else 3
        if step.name in _RESIZING:
            height, width = step.parameters.fixed_size or (None, None)
    if spec.layout == "NCHW":
        return [None, channels, height, width]
    return [None, height, width, channels]


Batch = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Inputs:
    """All inputs of an item, the same for both sides of an agreement.

    They are the dataset's, or without one the ``drawn`` batch of random values. ``batch_axes`` has
    the axis of the batch of each, the first where it is left out; None where there is none.
    """

    dataset: Dataset | None
    drawn: Batch
    batch_size: int
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, dataset: Dataset | None, reference: Predictor) -> Inputs:
        """Return the inputs of a case; random ones have the shapes of the reference's model.

        A model with a state goes through a dataset with the least of its batch sizes: a batch of N
        is N sequences side by side.
        """
        manifest = case.loaded.manifest
        size = case.batch_size
        axes = manifest.batch_axes
        if dataset and manifest.has_state:
            return cls(dataset, {}, min(manifest.evaluate.batch_sizes), axes)
        if dataset:
            return cls(dataset, {}, size, axes)
        return cls(None, random_batch(reference, case), size, axes)

    def __len__(self) -> int:
        return len(self.dataset) if self.dataset else self.batch_size

    def batches(self) -> Iterable[Batch]:
        """Return all inputs in batches of one size; the last batch may be filled up."""
        if self.dataset:
            return self.dataset.batches(self.batch_size)
        return [self.drawn]

    def repeated(self, index: int) -> Batch:
        """Return a batch that is all of one input, since a model may take no other size."""
        if self.dataset:
            return self.dataset.batch([index] * self.batch_size)
        batch = {}
        for name, values in self.drawn.items():
            axis = self.batch_axes.get(name, 0)
            if axis is None:
                batch[name] = values
            else:
                row = values.take([index], axis)
                batch[name] = np.repeat(row, values.shape[axis], axis)
        return batch

    @property
    def files(self) -> Sequence[str] | None:
        """The file of each input, where inputs are files."""
        return self.dataset.files if self.dataset else None

    def label(self, index: int) -> int | None:
        """Return the class that is the label of an input, where labels are classes."""
        labels = self.dataset.labels if self.dataset else None
        if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
            return None
        return int(labels[index])


def random_batch(
    predictor: Predictor, case: Case, seed: int | Sequence[int] | None = None
) -> dict[str, Array]:
    """Return a batch of random values for the inputs of a case's model.

    They are drawn by ``seed``, else by the manifest's. Raises OutputError where the shape of an
    input is not known.
    """
    manifest = case.loaded.manifest
    generator = np.random.default_rng(manifest.evaluate.seed if seed is None else seed)
    specs = {spec.name: spec for spec in case.inputs}
    batch = {}
    for tensor in predictor.inputs:
        spec = specs[tensor.name]
        if spec.is_state:
            batch[tensor.name] = start_state(spec, case.batch_size)
            continue
        try:
            batch[tensor.name] = draw_array(tensor, spec, case.batch_size, generator)
        except OutputError as error:
            number = list(specs).index(spec.name)
            raise OutputError(f"{case.loaded.place('inputs', number)}: {error}") from None
    return batch
