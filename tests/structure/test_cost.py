"""The cost of structures that are put together by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Operation, Structure, Tensor

from pytest_mlms.structure.cost import bound_shape, cost_of

Layer = tuple[str, str]
"""The names of the tensors that a layer reads, and of those that it writes."""


def structure(*layers: Layer, **shapes: tuple[int, ...]) -> Structure:
    """Return a structure from x to y, of floats; layer N costs N operations."""
    operations = []
    for index, (reads, writes) in enumerate(layers):
        operations.append(Operation(f"l{index}", "Op", index, reads.split(), writes.split()))
    tensors = [Tensor(name, "float32", shape) for name, shape in shapes.items()]
    return Structure(operations, tensors, ["x"], ["y"], "hand")


def single_layer(*tensors: Tensor) -> Structure:
    """Return a structure with one layer, which reads x and perhaps w, and writes y."""
    reads = [tensor.name for tensor in tensors if tensor.name != "y"]
    layer = Operation("l", "Op", 0, reads, ["y"])
    return Structure([layer], list(tensors), ["x"], ["y"], "hand")


def test_a_layer_reads_its_input_and_weights_and_writes_its_output() -> None:
    cost = cost_of(structure(("x w", "y"), x=(2,), w=(3, 4), y=(5,)))
    (layer,) = cost.layers
    assert layer.parameters == 12
    assert layer.weight_bytes == 4 * 12
    assert layer.input_bytes == 4 * 2
    assert layer.output_bytes == 4 * 5
    assert layer.shape == (5,)


def test_the_cost_of_a_model_is_the_sum_over_its_layers() -> None:
    cost = cost_of(
        structure(("x", "a"), ("a w", "b"), ("b", "y"), x=(1,), a=(2,), w=(3,), b=(4,), y=(5,))
    )
    assert cost.flops == 0 + 1 + 2
    assert cost.parameters == 3
    assert cost.weight_bytes == 4 * 3
    assert cost.activation_bytes == 4 * (2 + 4 + 5)
    assert cost.counter == "hand"


def test_a_tensor_of_weights_alone_counts_as_the_weights_behind_it() -> None:
    made = structure(
        ("w", "t"),
        ("", "c"),
        ("x t c", "a"),
        ("a t", "y"),
        x=(2,),
        w=(3, 4),
        t=(4, 3),
        c=(5,),
        a=(2,),
        y=(2,),
    )
    first, second = cost_of(made).layers
    assert first.name == "l2"
    assert first.parameters == 12 + 5
    assert first.weight_bytes == 4 * (12 + 5)
    assert first.input_bytes == 4 * 2
    assert second.name == "l3"
    assert second.parameters == 0
    assert second.input_bytes == 4 * 2


def test_an_output_that_nothing_reads_is_not_counted() -> None:
    made = structure(("x", "a unread"), ("a", "y"), x=(2,), a=(10,), unread=(99,), y=(1,))
    first, second = cost_of(made).layers
    assert first.output_bytes == 4 * 10
    assert second.output_bytes == 4 * 1


def test_a_tensor_that_is_written_in_place_is_held_once() -> None:
    made = structure(("x", "a"), ("a", "a"), ("a", "y"), x=(2,), a=(10,), y=(1,))
    assert cost_of(made).peak_bytes == 4 * (2 + 10)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_a_chain_of_layers_holds_two_neighbours_at_once(sizes: list[int]) -> None:
    inner = [f"a{index}" for index in range(1, len(sizes))]
    names = ["x", *inner, "y"]
    shapes = {name: (size,) for name, size in zip(names, [7, *sizes], strict=True)}
    cost = cost_of(structure(*pairwise(names), **shapes))
    pairs = [left + right for left, right in pairwise([7, *sizes])]
    assert cost.peak_bytes == 4 * max(pairs)


@given(st.data())
def test_each_weight_counts_once_whatever_reads_it(data: st.DataObject) -> None:
    weights = {f"w{index}": (data.draw(st.integers(1, 9)), 2) for index in range(4)}
    read_by_layer = data.draw(
        st.lists(st.sets(st.sampled_from(sorted(weights))), min_size=1, max_size=6)
    )
    layers = []
    shapes = {"x": (1,), "y": (1,), **weights}
    previous = "x"
    for index, read in enumerate(read_by_layer):
        name = f"a{index}"
        layers.append((" ".join([previous, *read]), name))
        shapes[name] = (1,)
        previous = name
    cost = cost_of(structure(*layers, (previous, "y"), **shapes))
    used = set[str]().union(*read_by_layer)
    assert cost.parameters == sum(math.prod(weights[name]) for name in used)
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
    dtype: str, weight_bytes: int, parameters: int
) -> None:
    x = Tensor("x", dtype, (1,))
    w = Tensor("w", dtype, (2, 4))
    y = Tensor("y", dtype, (1,))
    cost = cost_of(single_layer(x, w, y))
    assert cost.weight_bytes == weight_bytes
    assert cost.parameters == parameters


def test_a_single_number_is_no_parameter() -> None:
    assert cost_of(structure(("x w", "y"), x=(1,), w=(), y=(1,))).parameters == 0


def test_text_has_no_known_size() -> None:
    words = Tensor("x", "object", (1,))
    cost = cost_of(single_layer(words, Tensor("y", "float32", (1,))))
    assert cost.layers[0].input_bytes is None
    assert cost.peak_bytes is None


def test_unknown_operations_and_shapes_are_named_by_the_type_of_their_layer() -> None:
    known = Tensor("x", "float32", (1,))
    recurrent = Operation("r", "Recurrent", None, ["x"], ["a"])
    strange = Operation("s", "Strange", 0, ["a"], ["y"])
    made = Structure([recurrent, strange], [known], ["x"], ["y"], "hand")
    cost = cost_of(made)
    assert cost.unknown == ("Recurrent", "Strange")
    assert cost.peak_bytes is None
    assert cost.flops == 0


def test_the_free_first_axis_is_the_batch() -> None:
    assert bound_shape("x", [None, 3], 8, {}) == (8, 3)
    assert bound_shape("x", ["n", 3], 8, {}) == (8, 3)


def test_free_axes_are_bound_by_name_or_by_place() -> None:
    sizes = ["n", "words", None, "words"]
    assert bound_shape("x", sizes, 2, {"words": 7, "x.2": 3}) == (2, 7, 3, 7)
    assert bound_shape("x", sizes, 2, {"x.1": 7, "x.2": 3, "x.3": 8}) == (2, 7, 3, 8)
    assert bound_shape("x", sizes, 2, {"n": 5, "words": 7, "x.2": 3}) == (5, 7, 3, 7)


def test_free_axes_without_a_size_are_an_error_that_names_each_once() -> None:
    message = r"input 'x' has free axes; say --axis words=SIZE --axis x.2=SIZE$"
    with pytest.raises(ValueError, match=message):
        bound_shape("x", ["n", "words", None, "words"], 2, {})
