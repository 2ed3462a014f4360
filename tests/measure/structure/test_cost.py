"""The cost of structures that are put together by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Operation, Structure, Tensor

from pytest_mlms.measure.structure.cost import (
    ModelCost,
    Shape,
    bound_shape,
    cost_of,
)


class StructureBuilder:
    """A structure from x to y; layer N is called lN, and costs N operations."""

    def __init__(self) -> None:
        self._layers: list[Operation] = []
        self._tensors: list[Tensor] = []

    def add_tensor(self, name: str, *shape: int, dtype: str = "float32") -> None:
        self._tensors.append(Tensor(name, dtype, shape))

    def add_layer(self, reads: str, writes: str) -> None:
        """Add a layer; the names of tensors are separated by spaces."""
        number = len(self._layers)
        layer = Operation(f"l{number}", "Op", number, reads.split(), writes.split())
        self._layers.append(layer)

    def cost(self) -> ModelCost:
        return cost_of(Structure(self._layers, self._tensors, ["x"], ["y"], "hand"))


@pytest.fixture
def model() -> StructureBuilder:
    """A structure whose x has 2 elements, and whose y has 5."""
    model = StructureBuilder()
    model.add_tensor("x", 2)
    model.add_tensor("y", 5)
    return model


def test_a_layer_reads_its_input_and_weights_and_writes_its_output(
    model: StructureBuilder,
) -> None:
    model.add_tensor("w", 3, 4)
    model.add_layer("x w", "y")
    (layer,) = model.cost().layers
    assert layer.parameters == 12
    assert layer.weight_bytes == 4 * 12
    assert layer.input_bytes == 4 * 2
    assert layer.output_bytes == 4 * 5
    assert layer.shape == (5,)


def test_the_cost_of_a_model_is_the_sum_over_its_layers(model: StructureBuilder) -> None:
    model.add_tensor("a", 3)
    model.add_tensor("b", 4)
    model.add_tensor("w", 7)
    model.add_layer("x", "a")
    model.add_layer("a w", "b")
    model.add_layer("b", "y")
    cost = model.cost()
    assert cost.flops == 0 + 1 + 2
    assert cost.parameters == 7
    assert cost.weight_bytes == 4 * 7
    assert cost.activation_bytes == 4 * (3 + 4 + 5)
    assert cost.counter == "hand"


def test_a_tensor_of_weights_alone_counts_as_the_weights_behind_it(
    model: StructureBuilder,
) -> None:
    model.add_tensor("w", 3, 4)
    model.add_tensor("transposed", 4, 3)
    model.add_tensor("constant", 7)
    model.add_tensor("a", 2)
    model.add_layer("w", "transposed")
    model.add_layer("", "constant")
    model.add_layer("x transposed constant", "a")
    model.add_layer("a transposed", "y")
    first, second = model.cost().layers
    assert first.name == "l2"
    assert first.parameters == 12 + 7
    assert first.weight_bytes == 4 * (12 + 7)
    assert first.input_bytes == 4 * 2
    assert second.name == "l3"
    assert second.parameters == 0
    assert second.input_bytes == 4 * 2


def test_an_output_that_nothing_reads_is_not_counted(model: StructureBuilder) -> None:
    model.add_tensor("a", 10)
    model.add_tensor("unread", 99)
    model.add_layer("x", "a unread")
    model.add_layer("a", "y")
    first, second = model.cost().layers
    assert first.output_bytes == 4 * 10
    assert second.output_bytes == 4 * 5


def test_a_tensor_that_is_written_in_place_is_held_once(model: StructureBuilder) -> None:
    model.add_tensor("a", 10)
    model.add_layer("x", "a")
    model.add_layer("a", "a")
    model.add_layer("a", "y")
    a_and_y = 10 + 5
    assert model.cost().peak_bytes == 4 * a_and_y


@given(st.lists(st.integers(1, 50), min_size=2, max_size=9))
def test_a_chain_of_layers_holds_two_neighbours_at_once(sizes: list[int]) -> None:
    names = ["x"]
    for index in range(1, len(sizes) - 1):
        names.append(f"a{index}")
    names.append("y")
    model = StructureBuilder()
    for name, size in zip(names, sizes, strict=True):
        model.add_tensor(name, size)
    for source, target in pairwise(names):
        model.add_layer(source, target)
    neighbours = [left + right for left, right in pairwise(sizes)]
    assert model.cost().peak_bytes == 4 * max(neighbours)


WEIGHTS = ["w0", "w1", "w2", "w3"]
ROWS = st.lists(st.integers(1, 9), min_size=4, max_size=4)
READS = st.lists(st.sets(st.sampled_from(WEIGHTS)), min_size=1, max_size=6)


@given(ROWS, READS)
def test_each_weight_counts_once_whatever_reads_it(
    rows: list[int], reads: Sequence[set[str]]
) -> None:
    model = StructureBuilder()
    shapes = {name: (number, 2) for name, number in zip(WEIGHTS, rows, strict=True)}
    for name, shape in shapes.items():
        model.add_tensor(name, *shape)
    model.add_tensor("x", 1)
    used = set()
    for read in reads:
        model.add_layer(" ".join(["x", *read]), "x")
        used |= read
    cost = model.cost()
    assert cost.parameters == sum(math.prod(shapes[name]) for name in used)
    assert cost.weight_bytes == 4 * cost.parameters


@pytest.mark.parametrize(
    ("dtype", "weight_bytes", "parameters"),
    [
        ("float32", 32, 8),
        ("bfloat16", 16, 8),
        ("float8_e4m3fn", 8, 8),
        ("int8", 8, 8),
        ("uint4", 4, 8),
        ("int64", 64, 0),
        ("bool", 8, 0),
    ],
)
def test_bytes_and_parameters_follow_from_the_type_of_a_weight(
    model: StructureBuilder, dtype: str, weight_bytes: int, parameters: int
) -> None:
    model.add_tensor("w", 2, 4, dtype=dtype)
    model.add_layer("x w", "y")
    cost = model.cost()
    assert cost.weight_bytes == weight_bytes
    assert cost.parameters == parameters


def test_elements_smaller_than_a_byte_fill_whole_bytes(model: StructureBuilder) -> None:
    model.add_tensor("w", 3, dtype="int4")
    model.add_layer("x w", "y")
    assert model.cost().weight_bytes == 2


def test_a_single_number_is_no_parameter(model: StructureBuilder) -> None:
    model.add_tensor("w")
    model.add_layer("x w", "y")
    assert model.cost().parameters == 0


def test_text_has_no_known_size(model: StructureBuilder) -> None:
    model.add_tensor("a", 1, dtype="object")
    model.add_layer("x", "a")
    model.add_layer("a", "y")
    cost = model.cost()
    assert cost.layers[1].input_bytes is None
    assert cost.peak_bytes is None


def test_unknown_operations_and_shapes_are_named_by_the_type_of_their_layer() -> None:
    x = Tensor("x", "float32", (1,))
    recurrent = Operation("r", "Recurrent", None, ["x"], ["a"])
    strange = Operation("s", "Strange", 0, ["a"], ["y"])
    cost = cost_of(Structure([recurrent, strange], [x], ["x"], ["y"], "hand"))
    assert cost.unknown == ("Recurrent", "Strange")
    assert cost.peak_bytes is None
    assert cost.flops == 0


def test_the_free_first_axis_is_the_batch() -> None:
    assert bound_shape("x", [None, 3], 8, {}) == (8, 3)
    assert bound_shape("x", ["n", 3], 8, {}) == (8, 3)


SIZES = ["n", "words", None, "words"]


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ({"words": 7, "x.2": 3}, (2, 7, 3, 7)),
        ({"x.1": 7, "x.2": 3, "x.3": 8}, (2, 7, 3, 8)),
        ({"n": 5, "words": 7, "x.2": 3}, (5, 7, 3, 7)),
    ],
)
def test_free_axes_are_bound_by_name_or_by_place(axes: dict[str, int], shape: Shape) -> None:
    assert bound_shape("x", SIZES, 2, axes) == shape


def test_free_axes_without_a_size_are_an_error_that_names_each_once() -> None:
    message = r"input 'x' has free axes; say --axis words=SIZE --axis x.2=SIZE$"
    with pytest.raises(ValueError, match=message):
        bound_shape("x", SIZES, 2, {})
