"""What a model costs by its structure.

Against sums by hand, and against torch's and TensorFlow's own counts.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Operation, Structure, Tensor
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.cli.main import main
from pytest_mlms.errors import MlmsError
from pytest_mlms.structure.cost import cost_of
from pytest_mlms.structure.onnx_graph import describe_onnx
from tests.support.frameworks import python_of
from tests.support.project import DIGITS, PREDICTORS, copy_digits, write_matrix

DIGITS_ONNX = DIGITS / "digits_cnn.onnx"


def saved(
    folder: Path, nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **weights: Any
) -> Path:
    """Write a graph of these nodes; inputs are the shapes, weights the shapes or arrays."""
    arrays = {
        n: w if isinstance(w, np.ndarray) else np.zeros(w, np.float32) for n, w in weights.items()
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    path = folder / "m.onnx"
    onnx.save(
        helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)],
            ir_version=8,
        ),
        path,
    )
    return path


def test_the_digits_network_is_what_its_layers_say() -> None:
    found = describe_onnx(DIGITS_ONNX, 4)
    parameters = (9 * 1 * 16 + 16) + (9 * 16 * 32 + 32) + (9 * 32 * 64 + 64) + (256 * 10 + 10)
    products = 64 * 9 * 1 * 16 + 64 * 9 * 16 * 32 + 16 * 9 * 32 * 64 + 256 * 10
    assert found.parameters == parameters
    assert found.weight_bytes == 4 * parameters
    assert found.flops == 2 * 4 * products
    assert found.layers[0].shape == (4, 16, 8, 8)
    assert found.layers[0].output_bytes == 4 * 4 * 16 * 64
    assert found.layers[0].input_bytes == 4 * 4 * 64
    assert found.layers[-1].name == "linear_9"
    assert (
        found.peak_bytes == 2 * 4 * 4 * 32 * 64
    )  # the second convolution's output and that of its Relu
    assert found.unknown == ()
    assert "onnx" in found.counter


@given(st.integers(1, 200))
def test_operations_and_activations_grow_with_the_batch_and_weights_do_not(batch: int) -> None:
    one, many = describe_onnx(DIGITS_ONNX), describe_onnx(DIGITS_ONNX, batch)
    assert many.flops == batch * one.flops
    assert many.activation_bytes == batch * one.activation_bytes
    assert many.parameters == one.parameters


@given(
    *[st.integers(1, 4)] * 3,
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(3, 9),
    st.integers(1, 2),
)
def test_a_convolution_counts_each_product_of_each_group(
    tmp_path_factory: pytest.TempPathFactory,
    batch: int,
    inside: int,
    outside: int,
    groups: int,
    kernel: int,
    pad: int,
    size: int,
    stride: int,
) -> None:
    folder = tmp_path_factory.mktemp("conv")
    shape = (outside * groups, inside, kernel, kernel)
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], group=groups, pads=[pad] * 4, strides=[stride] * 2
    )
    path = saved(folder, [node], {"x": ["n", inside * groups, size, size]}, ["y"], w=shape)
    side = (size + 2 * pad - kernel) // stride + 1
    found = describe_onnx(path, batch)
    assert found.layers[0].shape == (batch, outside * groups, side, side)
    assert found.flops == 2 * batch * side * side * math.prod(shape)


def test_matrix_products_transposed_convolutions_and_shared_weights(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "w"], ["b"]),
        helper.make_node("Gemm", ["b", "b"], ["c"], transA=1),
    ]
    found = describe_onnx(saved(tmp_path, nodes, {"x": [5, 5]}, ["c"], w=(5, 5)))
    assert [layer.flops for layer in found.layers] == [250, 0, 250]
    assert [layer.parameters for layer in found.layers] == [25, 0, 0]
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    found = describe_onnx(saved(tmp_path, [node], {"x": ["n", 3, 4, 4]}, ["y"], w=(3, 7, 2, 2)))
    assert found.layers[0].shape == (1, 7, 8, 8)
    assert found.flops == 2 * 3 * 16 * 7 * 4


def test_shapes_and_indices_are_no_parameters(tmp_path: Path) -> None:
    node = helper.make_node("Reshape", ["x", "to"], ["y"])
    found = describe_onnx(
        saved(tmp_path, [node], {"x": ["n", 4, 2]}, ["y"], to=np.array([-1, 8])), 3
    )
    assert found.parameters == 0
    assert found.layers[0].shape == (3, 8)


@given(st.integers(1, 64))
def test_a_shape_that_the_model_computes_is_followed(
    tmp_path_factory: pytest.TempPathFactory, batch: int
) -> None:
    """As exporters write: the batch is cut out of a shape, put beside a number, and reshaped to."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "from", "to"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    numbers = {"from": np.array([0]), "to": np.array([1]), "rest": np.array([-1])}
    folder = tmp_path_factory.mktemp("reshaped")
    found = describe_onnx(
        saved(folder, nodes, {"x": ["n", 4, 6]}, ["y"], w=(24, 3), **numbers), batch
    )
    assert found.layers[-1].shape == (batch, 3)
    assert found.flops == 2 * batch * 24 * 3
    assert found.unknown == ()


def test_what_can_not_be_told_is_said(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Own", ["x"], ["y"], domain="mine"),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    found = describe_onnx(saved(tmp_path, nodes, {"x": [1, 2]}, ["z"]))
    assert found.unknown == ("Own", "Relu")
    assert found.peak_bytes is None
    assert found.flops == 0


def test_a_free_axis_that_is_not_the_batch_is_asked_for(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": ["n", "words", None, "words"]},
        ["y"],
    )
    with pytest.raises(
        MlmsError, match=r"input 'x' has free axes; say --axis words=SIZE --axis x.2=SIZE$"
    ):
        describe_onnx(path)
    assert describe_onnx(path, 2, {"words": 7, "x.2": 3}).layers[0].shape == (2, 7, 3, 7)
    assert describe_onnx(path, 2, {"x.1": 7, "x.2": 3, "x.3": 8}).layers[0].shape == (2, 7, 3, 8)


@pytest.mark.parametrize("data", [b"no model", b""])
def test_a_file_that_is_no_model_is_a_clean_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(MlmsError, match="can't be described"):
        describe_onnx(tmp_path / "m.onnx")


def test_the_command_prints_a_table_of_a_manifest_within_100_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["describe", str(DIGITS / "digits.yaml"), "--batch-size", "64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("digits.yaml, batch of 64")
    assert lines[1].split() == [
        "layer",
        "type",
        "output",
        "parameters",
        "FLOPs",
        "weights",
        "activations",
    ]
    assert "conv2d_2" in lines[4]
    assert any(line.startswith("in all") and "25.9 k" in line for line in lines)
    assert "at most 1.00 MiB of activations at once" in lines
    assert all(len(line) <= 100 for line in lines[1:])


def test_the_command_prints_json_and_refuses_what_it_can_not_describe(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["describe", "--json", str(DIGITS_ONNX)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == sum(layer["parameters"] for layer in found["layers"])
    assert main(["describe", str(tmp_path / "none.onnx")]) == 2
    assert "can't be described" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["describe", "--axis", "words", str(DIGITS_ONNX)])


def structure(*layers: tuple[str, str], **shapes: tuple[int, ...]) -> Structure:
    """Return what has these layers, as ("a b", "c") reads a and b and writes c.

    X goes in and y comes out.
    """
    operations = [
        Operation(f"l{i}", "Op", i, read.split(), made.split())
        for i, (read, made) in enumerate(layers)
    ]
    tensors = [
        Tensor(name, "int64" if name.startswith("i") else "float32", shape)
        for name, shape in shapes.items()
    ]
    return Structure(operations, tensors, ["x"], ["y"], "hand")


def test_what_is_computed_from_weights_alone_is_no_layer_and_counts_as_the_weights_behind_it() -> (
    None
):
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
    assert (first.name, first.parameters, first.weight_bytes, first.input_bytes) == (
        "l2",
        12 + 5,
        4 * 17,
        8,
    )
    assert (second.name, second.parameters, second.weight_bytes, second.input_bytes) == (
        "l3",
        0,
        0,
        8,
    )


def test_what_nobody_reads_is_not_counted_and_what_is_written_in_place_is_held_once() -> None:
    made = structure(
        ("x", "a unread"), ("a", "a"), ("a", "y"), x=(2,), a=(10,), unread=(99,), y=(1,)
    )
    found = cost_of(made)
    assert [layer.output_bytes for layer in found.layers] == [40, 40, 4]
    assert found.peak_bytes == 48  # x and a


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_a_chain_holds_two_neighbours_at_once(sizes: list[int]) -> None:
    names = ["x", *(f"a{index}" for index in range(len(sizes) - 1)), "y"]
    made = structure(
        *pairwise(names), **dict(zip(names, [(size,) for size in (7, *sizes)], strict=True))
    )
    assert cost_of(made).peak_bytes == 4 * max(map(sum, pairwise([7, *sizes])))


@given(st.data())
def test_each_weight_counts_once_whoever_reads_it(data: st.DataObject) -> None:
    weights = {f"w{index}": (data.draw(st.integers(1, 9)), 2) for index in range(4)}
    picks = data.draw(st.lists(st.sets(st.sampled_from(sorted(weights))), min_size=1, max_size=6))
    layers = [
        (" ".join([f"a{index}" if index else "x", *pick]), f"a{index + 1}")
        for index, pick in enumerate(picks)
    ]
    shapes = {f"a{index + 1}": (1,) for index in range(len(picks))}
    found = cost_of(structure(*layers, ("a1", "y"), x=(1,), y=(1,), **shapes, **weights))
    used = set().union(*picks)
    assert found.parameters == sum(math.prod(weights[name]) for name in used)
    assert found.weight_bytes == 4 * found.parameters


@pytest.mark.parametrize(
    ("dtype", "size", "learned"),
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
def test_bytes_and_whether_a_weight_was_learned_follow_from_its_type(
    dtype: str, size: int, learned: int
) -> None:
    tensors = [Tensor("x", dtype, (1,)), Tensor("w", dtype, (2, 4)), Tensor("y", dtype, (1,))]
    found = cost_of(
        Structure([Operation("l", "Op", 0, ["x", "w"], ["y"])], tensors, ["x"], ["y"], "hand")
    )
    assert (found.parameters, found.weight_bytes) == (learned, size)


def test_a_lone_number_is_no_parameter_and_text_has_no_size() -> None:
    assert cost_of(structure(("x w", "y"), x=(1,), w=(), y=(1,))).parameters == 0
    words = [Tensor("x", "object", (1,)), Tensor("y", "float32", (1,))]
    found = cost_of(Structure([Operation("l", "Op", 0, ["x"], ["y"])], words, ["x"], ["y"], "hand"))
    assert (found.layers[0].input_bytes, found.peak_bytes) == (None, None)


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Path]]:
    """A call that describes a manifest of tests/support/predictors/matrix.py, with an option of its
    and more of the command's.
    """
    monkeypatch.chdir(tmp_path)

    def run(told: str, *arguments: str) -> tuple[int, Path]:
        path = write_matrix(tmp_path, told)
        return main(["describe", str(path), "--mlms-predictors", str(PREDICTORS), *arguments]), path

    return run


def test_a_model_that_is_no_onnx_is_described_by_its_framework_in_an_agent(
    matrix: Callable[..., tuple[int, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert matrix("whole", "--batch-size", "4", "--json")[0] == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["parameters"], found["flops"], found["counter"]) == (15, 2 * 4 * 3 * 5, "hand")
    assert found["layers"][0]["shape"] == [4, 5]
    assert matrix("free", "--axis", "x.1=3")[0] == 0
    assert "operations by hand" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            "mute",
            "m.yaml:5: matrix doesn't tell what its models are made of; describe the network as ONNX",
        ),
        ("free", "m.yaml:5: input 'x' has free axes; say --axis x.1=SIZE"),
        (
            "untold",
            "m.yaml:5: the model doesn't say the shape of 'x'; write it, as in: options: {inputs: 'x float32[?,",
        ),
    ],
)
def test_what_a_framework_does_not_tell_is_said_with_the_line(
    matrix: Callable[..., tuple[int, Path]],
    capsys: pytest.CaptureFixture[str],
    told: str,
    said: str,
) -> None:
    assert matrix(told)[0] == 2
    assert said in capsys.readouterr().err


def test_the_log_that_an_error_names_is_there_and_no_other_stays(
    matrix: Callable[..., tuple[int, Path]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert matrix("fail")[0] == 2
    said = re.search(
        r"ValueError: a shape that it can't follow \(log: (.*)\)", capsys.readouterr().err
    )
    assert said
    (log,) = temporary.rglob("*.log")
    assert str(log) == said[1]
    assert [matrix(told)[0] for told in ("whole", "mute", "untold")] == [0, 2, 2]
    assert list(temporary.rglob("*.log")) == [log]


def test_a_stack_without_a_model_and_a_folder_without_a_manifest_are_told(
    matrix: Callable[..., tuple[int, Path]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert matrix("whole", "--mlms-stack", "onnxruntime==1.17.0")[0] == 2
    assert "m.yaml:5: no model is for onnxruntime==1.17.0" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["describe", str(tmp_path / "empty")]) == 2
    assert "has no .yaml file" in capsys.readouterr().err


def test_a_folder_gives_each_manifest_its_table_and_a_fault_of_one_does_not_hide_another(
    matrix: Callable[..., tuple[int, Path]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy_digits(tmp_path / "some")  # after m.yaml, and a.yaml, which is none
    (tmp_path / "stacks.yaml").write_text("own: {framework: onnxruntime, interpreter: current}\n")
    (tmp_path / "a.yaml").write_text("name: half\n")
    _, path = matrix("mute")
    capsys.readouterr()
    assert main(["describe", str(tmp_path), "--mlms-predictors", str(PREDICTORS)]) == 2
    shown = capsys.readouterr()
    assert "digits.yaml, batch of 1" in shown.out
    assert f"{path.name}:5: matrix doesn't tell" in shown.err
    assert "a.yaml:1: " in shown.err
    assert (
        main(
            ["describe", str(tmp_path), "--mlms-predictors", str(PREDICTORS), "--mlms-stack", "own"]
        )
        == 2
    )
    shown = capsys.readouterr()
    assert "digits.yaml, own, batch of 1" in shown.out
    assert f"{path.name}:5: no model is for own" in shown.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "module"), [("pytorch", "torch"), ("tensorflow", "tensorflow")]
)
def test_each_frameworks_own_counter_counts_the_same_operations_and_parameters_of_the_same_network(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    framework: str,
    module: str,
) -> None:
    """torch's FlopCounterMode, TensorFlow's profiler, and the counts from onnx's shape inference."""
    monkeypatch.chdir(tmp_path)
    stack = f"own: {{framework: {framework}, interpreter: {python_of(framework, module)}}}\n"
    (tmp_path / "stacks.yaml").write_text(stack)
    assert (
        main(
            [
                "describe",
                "--json",
                "--batch-size",
                "4",
                "--mlms-stack",
                "own",
                str(DIGITS / "digits.yaml"),
            ]
        )
        == 0
    )
    found, own = json.loads(capsys.readouterr().out), describe_onnx(DIGITS_ONNX, 4)
    assert found["stack"] == "own"
    assert framework.lower() in found["counter"].lower()
    assert (found["flops"], found["parameters"]) == (own.flops, own.parameters)
    assert (found["peak_bytes"], found["unknown"]) == (own.peak_bytes, [])
