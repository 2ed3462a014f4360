"""The inner tensors of a network on both sides, a part at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from pytest_mlms.core.arrays import Array, Arrays
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.reduce.deviation import Deviation, deviation, largest_value
from pytest_mlms.explain.reduce.extraction import network_with_outputs
from pytest_mlms.explain.reduce.network import Network
from pytest_mlms.explain.reduce.sides import Failure, Side, Sides
from pytest_mlms.explain.repro.bundle import Expectation
from pytest_mlms.explain.repro.verdict import rule_of
from pytest_mlms.measure.evaluate.closeness import Rule
from pytest_mlms.measure.structure.onnx_shapes import dtype_of

_PART_BYTES = 1 << 28
"""Bytes of the tensors that a model gives at a time, beside its own outputs."""
_MOST_BYTES = 1 << 34
"""Bytes of all inner tensors of one side, which are kept on disk."""
_WIDEST = 8  # bytes of an element whose type is not known
_SHAPE = "shape of "
_FEW = 8


class StoredArrays(Mapping[str, Array]):
    """Arrays by name, in files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] = {}
        self._held: dict[str, Array] = {}

    def add(self, name: str, array: Array) -> None:
        """Write an array, once."""
        if name not in self._files:
            path = self._folder / f"{len(self._files)}.npy"
            np.save(path, array)
            self._files[name] = path

    def with_arrays(self, arrays: Arrays) -> StoredArrays:
        """Return the same with other arrays of some names, which are held in memory."""
        other = StoredArrays(self._folder)
        other._files = self._files
        other._held = dict(arrays)
        return other

    def __getitem__(self, name: str) -> Array:
        if name in self._held:
            return self._held[name]
        array: Array = np.load(self._files[name])
        return array

    def __iter__(self) -> Iterator[str]:
        return iter({**self._files, **self._held})

    def __len__(self) -> int:
        return len({**self._files, **self._held})


@dataclass(frozen=True)
class Inner:
    """The inner tensors of the old side, and how far the new side's are from them, by name.

    ``deviations`` is empty where the new side was not run. ``reason`` says why there are no
    tensors, or no deviations.
    """

    values: StoredArrays
    deviations: Mapping[str, Deviation]
    reason: str = ""


def record_inner(network: Network, inputs: Arrays, side: Side, folder: Path) -> Inner:
    """Record the inner tensors of the old side alone."""
    return _collect(network, inputs, _Recorder(side, folder))


def compare_inner(
    network: Network, inputs: Arrays, sides: Sides, expected: Expectation, folder: Path
) -> Inner:
    """Record the inner tensors of the old side, and compare the new side's with them."""
    return _collect(network, inputs, _Recorder(sides.old, folder, sides.new, expected))


@dataclass
class _Recorder:
    """Runs a network with more outputs on one side, or on both."""

    old: Side
    folder: Path
    new: Side | None = None
    expected: Expectation | None = None

    def outputs(
        self, model: onnx.ModelProto, inputs: Arrays
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the outputs of both sides; raises MlmsError where one refuses the model."""
        path = self.folder / "inner.onnx"
        onnx.save(model, path)
        old = _outputs(self.old, path, inputs)
        new = {} if self.new is None else _outputs(self.new, path, inputs)
        return old, new

    def rule(self, name: str) -> Rule:
        """Return the rule of a tensor."""
        return Rule() if self.expected is None else rule_of(self.expected, name)


def _outputs(side: Side, path: Path, inputs: Arrays) -> dict[str, Array]:
    found = side.run(path, inputs)
    if isinstance(found, Failure):
        raise MlmsError(f"{side.name} does not give its inner outputs: {found.text}")
    return found


def _collect(network: Network, inputs: Arrays, recorder: _Recorder) -> Inner:
    values = StoredArrays(recorder.folder)
    for name, array in inputs.items():
        values.add(name, array)
    deviations = {name: _unchanged(array) for name, array in inputs.items()}
    try:
        for names in _parts(network, inputs, recorder):
            model = network_with_outputs(network, names)
            old, new = recorder.outputs(model, inputs)
            for name in [*names, *network.outputs]:
                if name not in old or not _is_as_typed(network, name, old[name]):
                    continue
                values.add(name, old[name])
                if name in new:
                    deviations[name] = deviation(old[name], new[name], recorder.rule(name))
    except MlmsError as error:
        return Inner(values, {}, str(error))
    return Inner(values, deviations)


def _unchanged(array: Array) -> Deviation:
    """Return the deviation of an input, which both sides have alike."""
    return Deviation(0.0, 0.0, largest_value(array))


def _is_as_typed(network: Network, name: str, array: Array) -> bool:
    """Return whether an array is what the network has there: complex ones come as two floats."""
    known = network.types.get(name)
    if known is None:
        return True
    return dtype_of(known.tensor_type.elem_type) == str(array.dtype)


def _parts(network: Network, inputs: Arrays, recorder: _Recorder) -> Iterator[list[str]]:
    """Yield the tensors that a model gives at a time.

    Raises MlmsError where they are too large together.
    """
    sizes = _sizes(network, inputs, recorder)
    total = sum(sizes.values())
    if total > _MOST_BYTES:
        problem = f"the inner outputs have {total / 1e9:.0f} GB"
        raise MlmsError(f"{problem}; give inputs of a smaller batch")
    yield from _packed(sizes)


def _packed(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield names whose sizes are not above a part's together, or a single one that is."""
    part: list[str] = []
    left = _PART_BYTES
    for name, size in sizes.items():
        if part and size > left:
            yield part
            part = []
            left = _PART_BYTES
        part.append(name)
        left -= size
    if part:
        yield part


def _sizes(network: Network, inputs: Arrays, recorder: _Recorder) -> dict[str, int]:
    """Return the bytes of each tensor that a node writes, by a run that gives their shapes.

    Sequences and the like are left out. Where the old side refuses to give shapes, the bytes are
    made up so that a part has a few tensors.
    """
    names = [name for name in network.writers if _may_be_array(network, name)]
    model = network_with_outputs(network, ())
    _add_shapes(model.graph, names)
    path = recorder.folder / "shapes.onnx"
    onnx.save(model, path)
    shapes = recorder.old.run(path, inputs)
    if isinstance(shapes, Failure):
        return dict.fromkeys(names, _PART_BYTES // _FEW)
    sizes = {}
    for name in names:
        count = math.prod(int(size) for size in shapes[_SHAPE + name])
        sizes[name] = count * _element_bytes(network, name)
    return sizes


def _may_be_array(network: Network, name: str) -> bool:
    known = network.types.get(name)
    if known is None:
        return True
    if known.WhichOneof("value") != "tensor_type":
        return False
    return dtype_of(known.tensor_type.elem_type) != ""


def _add_shapes(graph: onnx.GraphProto, names: Iterable[str]) -> None:
    """Add the shapes of tensors to the outputs of a graph."""
    for name in names:
        output = _SHAPE + name
        graph.node.append(helper.make_node("Shape", [name], [output]))
        value = helper.make_tensor_value_info(output, onnx.TensorProto.INT64, [None])
        graph.output.append(value)


def _element_bytes(network: Network, name: str) -> int:
    known = network.types.get(name)
    dtype = dtype_of(known.tensor_type.elem_type) if known is not None else ""
    try:
        return np.dtype(dtype).itemsize if dtype else _WIDEST
    except TypeError:
        return _WIDEST
