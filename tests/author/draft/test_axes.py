"""The axes of inputs: the batch, and the sizes of those that a model leaves free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Tensor
from onnx import TensorProto, helper, save

from pytest_mlms.author.draft.axes import axes_of, batch_size, pinned
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.inputs import guess_inputs
from pytest_mlms.author.draft.onnx_hints import OnnxHints, axes_of_inputs
from pytest_mlms.core.errors import MlmsError
from tests.author.draft.test_drafting import request
from tests.support.project import DIGITS

ANY = None


def written(*tensors: Tensor, named: Any = None, **said: Any) -> list[Any]:
    """Return the shapes of inputs as a manifest has them."""
    found = axes_of(tensors, named or {}, said)
    return [found[tensor.name].written for tensor in tensors]


def floats(name: str, *shape: int | None) -> Tensor:
    return Tensor(name, "float32", shape)


def save_inputs(path: Path, **shapes: Any) -> None:
    """Write an ONNX file with inputs of these shapes; None is one of an unknown shape."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
        for name, sizes in shapes.items()
    ]
    save(helper.make_model(helper.make_graph([], "g", values, values)), path)


def test_the_names_of_axes_are_read_from_an_onnx_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save_inputs(path, x=[100, "batch", None], rate=[], unknown=None)
    found = axes_of_inputs(path)
    assert found == {"x": (100, "batch", None), "rate": (), "unknown": None}
    path.with_name("m.ONNX").write_bytes(path.read_bytes())
    path.with_name("m.bin").write_bytes(path.read_bytes())
    assert (
        axes_of_inputs(path.with_name("m.ONNX")) == axes_of_inputs(path.with_name("m.bin")) == found
    )
    path.write_bytes(path.read_bytes()[:-3])
    assert axes_of_inputs(path) == {}, "a damaged file tells nothing"
    (tmp_path / "empty.onnx").touch()
    assert axes_of_inputs(tmp_path / "empty.onnx") == {}
    for other in ("digits_cnn.tflite", "digits_cnn.pt2"):
        assert axes_of_inputs(DIGITS / other) == {}


@given(st.binary(max_size=60))
def test_bytes_that_are_no_onnx_file_tell_nothing_and_raise_nothing(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.onnx"
    path.write_bytes(content)
    assert isinstance(axes_of_inputs(path), dict)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((100, "batch", 32), [100, "batch", 32]),
        ((100, "N", 32), [100, "batch", 32]),
        (("seq", "batch_size", 32), [16, "batch", 32]),
        (("batch", "seq", 32), ["batch", 16, 32]),
        (("n", "batch", 32), [16, "batch", 32]),
        (("b", "n", 32), ["batch", 16, 32]),
        ((1, "N", 32), ["batch", 16, 32]),  # of points, as the first axis may be the batch
        (("time", 1, 40), [16, 1, 40]),
        (("num_points", 3, 7), [16, 3, 7]),
        (("num_sequences", "sequence_length"), ["batch", 16000]),
        ((3, "height", "width"), [3, 16, 16]),
        ((1, "height", "width"), ["batch", 16, 16]),
        (("batch x seq_len", 3, 7), ["batch", 3, 7]),
    ],
)
def test_the_batch_is_the_axis_that_is_called_so(names: Any, expected: Any) -> None:
    shape = [size if isinstance(size, int) else None for size in names]
    assert written(floats("x", *shape), named={"x": names}) == [expected]


def test_a_batch_that_nothing_tells_is_refused_with_the_options_that_do() -> None:
    message = (
        "input 'a' is 100 x any x 32, and nothing tells which is the batch; say it: "
        "mlms init … --shape a=100,batch,32, or --shape a=batch,16,32, or sizes alone where there is "
        "none"
    )
    with pytest.raises(MlmsError, match=message):
        written(floats("a", 100, ANY, 32))
    assert written(floats("a", 100, ANY, 32), a=(100, "batch", 32)) == [[100, "batch", 32]]
    found = axes_of([floats("a", 100, ANY, 32)], {}, {"a": ("batch", 7, 32)})
    assert (found["a"].written, batch_size(found)) == (["batch", 7, 32], 100)
    found = axes_of([floats("a", 100, ANY, 32)], {}, {"a": (100, 7, 32)})
    assert (found["a"].written, batch_size(found)) == ([100, 7, 32], 1)
    named = {"a": ("time", None, 32)}
    with pytest.raises(MlmsError, match="--shape a=16,batch,32, or --shape a=batch,16,32, or"):
        written(floats("a", ANY, ANY, 32), named=named)
    assert written(floats("a", ANY, ANY, 32), named=named, a=("batch", 9, 32)) == [["batch", 9, 32]]


def test_sizes_that_the_user_says_are_no_batch_beside_that_of_another_input() -> None:
    tensors = [floats("x", ANY, 8), floats("mask", 2, ANY)]
    found = axes_of(tensors, {}, {"mask": (2, 7)})
    assert [found[name].written for name in found] == [["batch", 8], [2, 7]]
    assert batch_size(found) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn", ""])
def test_a_free_axis_of_a_type_that_numpy_does_not_have_has_a_size(dtype: str) -> None:
    tensor = Tensor("x", dtype, (ANY, ANY, 4))
    assert written(tensor) == [["batch", 16, 4]]
    with pytest.raises(MlmsError, match="input 'x' is .*; export the model so that it takes one"):
        guess_inputs([tensor], None, OnnxHints())


def test_an_axis_of_another_name_than_the_batch_is_none() -> None:
    tensors = [floats("x", ANY, 8), floats("mask", 2, ANY)]
    assert written(*tensors) == [["batch", 8], [2, "batch"]]
    named = {"x": ("u0", 8), "mask": (2, "seq")}
    assert written(*tensors, named=named) == [["batch", 8], [2, 16000]]
    assert written(floats("x", ANY, 576), named={"x": ("sequence", 576)}) == [[16, 576]]
    named = {"x": ("u0", 8), "mask": (2, "u0")}
    assert written(*tensors, named=named) == [["batch", 8], [2, "batch"]]


@pytest.mark.parametrize(
    ("shapes", "expected", "size"),
    [
        ([(1, 512), (2, 1, 64)], [["batch", 512], [2, "batch", 64]], 1),
        ([(2, 1, 64), (1, 512)], [[2, "batch", 64], ["batch", 512]], 1),
        ([(8, 100), (2, 8, 64), (3,)], [["batch", 100], [2, "batch", 64], [3]], 8),
        ([(ANY, 100), (1, 5)], [["batch", 100], [1, 5]], None),
        ([(), ()], [[], []], 1),
    ],
)
def test_inputs_of_fixed_shapes_have_one_batch(shapes: Any, expected: Any, size: Any) -> None:
    tensors = [floats(f"x{number}", *shape) for number, shape in enumerate(shapes)]
    found = axes_of(tensors, {}, {})
    assert [found[tensor.name].written for tensor in tensors] == expected
    assert batch_size(found) == size


def test_axes_of_one_name_have_one_size_and_sums_are_of_their_parts() -> None:
    tensors = [
        Tensor("input_ids", "int64", (ANY, ANY)),
        Tensor("attention_mask", "int64", (ANY, ANY)),
        floats("past.key", ANY, 4, ANY, 8),
        floats("embeds", ANY, ANY, 8),
    ]
    named = {
        "input_ids": ("batch", "seq"),
        "attention_mask": ("batch", "past_len + seq"),
        "past.key": ("batch", 4, "past_len", 8),
        "embeds": ("batch", "seq", 8),
    }
    ids, mask, past, embeds = written(*tensors, named=named)
    assert (ids, past, mask) == (["batch", 64], ["batch", 4, 16, 8], ["batch", 80])
    assert embeds == ["batch", 64, 8]
    ids, mask, _, _ = written(*tensors, named=named, input_ids=("batch", 1))
    assert (ids, mask) == (["batch", 1], ["batch", 17])
    named["attention_mask"] = ("batch", "total_sequence_length")
    assert written(*tensors, named=named, input_ids=("batch", 1))[1] == ["batch", 17]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"wave": (1, 5)}, "--shape wave=…: the model has no input 'wave'; did you mean 'wav'?"),
        (
            {"wav": (5,)},
            r"--shape wav=5 is of 1, and the axes of the model's input are 2 \(1 x any",
        ),
        ({"wav": (2, 5)}, r"--shape wav=2,5 says 2 where the model's input has 1 \(1 x any\)"),
        ({"rate": (1,)}, r"are 0 \(a single number\)"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(said: Any, message: str) -> None:
    tensors = [floats("wav", 1, ANY), floats("rate")]
    with pytest.raises(MlmsError, match=message):
        axes_of(tensors, {"rate": ()}, said)


def test_the_users_sizes_are_those_of_the_manifest_and_no_guesses() -> None:
    tensor = floats("wav", ANY, ANY)
    found = axes_of([tensor], {}, {"wav": (4, 8000)})
    assert (found["wav"].written, found["wav"].guessed) == (["batch", 8000], ())
    assert batch_size(found) == 4
    assert axes_of([tensor], {}, {})["wav"].guessed == (1,)
    unknown = axes_of([floats("x")], {"x": None}, {"x": ("batch", 3)})["x"]
    assert (unknown.written, unknown.is_told) == (["batch", 3], False)
    assert pinned(tensor, {"wav": (1, 2, 3)}) == tensor, "which is refused elsewhere"
    assert pinned(floats("x", ANY, 3, ANY, ANY), {"x": (1, 3, 64, 48)}).shape == (ANY, 3, 64, 48)


def test_batches_of_two_sizes_are_refused() -> None:
    tensors = [floats("x", ANY, ANY), floats("y", ANY, ANY)]
    found = axes_of(tensors, {}, {"x": (4, 5), "y": (2, 5)})
    with pytest.raises(MlmsError, match="the inputs have batches of 2 and of 4; say which axis"):
        batch_size(found)


def test_a_number_of_rank_0_is_drafted_and_an_unknown_shape_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])]
    for name, shape in (("m", []), ("unknown", None)):
        rate = helper.make_tensor_value_info("sr", TensorProto.FLOAT, shape)
        node = helper.make_node("Mul", ["x", "sr"], ["y"])
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([node], "g", [*values, rate], [output])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        save(model, f"{name}.onnx")
    _, part = draft_manifest(request("m.onnx", said=[])).inputs
    assert (part.shape, part.range) == ([], [16000, 16000])
    message = "does not say the shape of 'sr'; say it: mlms init unknown.onnx --shape sr=batch,3"
    with pytest.raises(MlmsError, match=message):
        draft_manifest(request("unknown.onnx", said=[]))
    asked = replace(request("unknown.onnx", said=[]), shapes={"sr": (1, 3)})
    assert draft_manifest(asked).inputs[1].shape == ["batch", 3]
