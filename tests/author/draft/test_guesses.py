"""Guesses at the inputs and outputs of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.author.draft.data import ArrayData, TableData
from pytest_mlms.author.draft.inputs import guess_inputs
from pytest_mlms.author.draft.onnx_hints import OnnxHints, hints_of
from pytest_mlms.author.draft.opening import Trial
from pytest_mlms.author.draft.outputs import guess_masks, guess_numbers, guess_outputs
from pytest_mlms.author.draft.parts import Draft, InputPart, ModelPart, OutputPart, scalar
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest import load
from pytest_mlms.manifest.yaml12 import parse

ANY = None


def only(tensor: Tensor, data: Any = None) -> InputPart:
    (part,) = guess_inputs([tensor], data, OnnxHints())
    part.spec()  # the manifest accepts it
    return part


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "steps"),
    [
        ((ANY, 3, 224, 224), "float32", "NCHW", ["RGB", "[224, 224]", "123.675"]),
        ((1, 299, 299, 3), "float32", "NHWC", ["RGB", "[299, 299]", "123.675"]),
        ((ANY, 1, 28, 28), "float32", "NCHW", ["L", "[28, 28]", "scale: 255"]),
        ((ANY, 96, 96, 3), "uint8", "NHWC", ["RGB", "[96, 96]"]),
        ((ANY, 3, ANY, ANY), "float32", "NCHW", ["RGB", "[224, 224]", "123.675"]),
    ],
)
def test_pictures_are_known_by_their_shape(
    shape: Any, dtype: str, layout: str, steps: list[str]
) -> None:
    part = only(Tensor("x", dtype, shape))
    assert (part.type, part.layout) == ("image", layout)
    assert len(part.steps) == len(steps)
    for (step, _), expected in zip(part.steps, steps, strict=True):
        assert expected in step


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("x", (ANY, 1, 98, 40)),
        ("mfcc", (ANY, 1, 40, 40)),
        ("spectrogram", (1, 1, 257, ANY)),
        ("x", (ANY, 96, 64, 1)),
        ("input_spec", (ANY, 3, 128, 128)),
        ("conv_cache", (ANY, 1, 16, 16)),
        ("past_key_values.0.key", (ANY, 3, 64, 64)),
    ],
)
def test_spectra_mfcc_and_caches_are_no_pictures_unless_the_data_has_pictures(
    tmp_path: Path, name: str, shape: Any
) -> None:
    part = only(Tensor(name, "float32", shape))
    assert (part.type, part.steps) == ("tensor", ())
    assert part.comment.startswith("a guess: no picture, but a spectrum or the like")
    assert only(Tensor(name, "float32", shape), TableData(tmp_path)).type == "image"


@pytest.mark.parametrize(("name", "shape"), [("x", (ANY, 1, 28, 28)), ("image", (ANY, 1, 32, ANY))])
def test_grey_pictures_are_square_or_called_so(name: str, shape: Any) -> None:
    assert only(Tensor(name, "float32", shape)).type == "image"


def test_free_sides_are_those_of_the_data(tmp_path: Path) -> None:
    arrays = {"x": (np.dtype(np.uint8), (10, 32, 48, 3))}
    np.savez(tmp_path / "d.npz", x=np.full((10, 32, 48, 3), 255, np.uint8))
    data = ArrayData(tmp_path / "d.npz", arrays)
    part = only(Tensor("x", "float32", (ANY, 3, ANY, ANY)), data)
    assert "[32, 48]" in part.steps[1][0]


def test_a_guessed_size_of_pictures_is_one_that_an_option_says() -> None:
    assert only(Tensor("x", "float32", (ANY, 3, 64, 64))).guess == ""
    assert only(Tensor("x", "float32", (ANY, 3, ANY, 64))).guess == "--shape x=batch,3,224,64"
    nhwc = Tensor("x", "float32", (ANY, ANY, ANY, 1))
    assert only(nhwc).guess == "--shape x=batch,224,224,1"
    (part,) = guess_inputs([nhwc], None, OnnxHints(), said={"x": ("batch", 48, 48, 1)})
    assert (part.guess, part.steps[1]) == ("", ("resize: {size: [48, 48], method: bilinear}", ""))


def test_arrays_of_the_models_own_shape_have_no_steps(tmp_path: Path) -> None:
    arrays = {"x": (np.dtype(np.float64), (10, 3, 32, 48))}
    part = only(Tensor("x", "float32", (ANY, 3, 32, 48)), ArrayData(tmp_path, arrays))
    assert part.type == "tensor"
    assert [step for step, _ in part.steps] == ["cast: {to: float32}"]


def test_three_inputs_of_tokens_have_ranges_that_run() -> None:
    names = ("input_ids", "attention_mask", "token_type_ids")
    tensors = [Tensor(name, "int64", (ANY, ANY)) for name in names]
    parts = guess_inputs(tensors, None, OnnxHints({"input_ids": 30522}))
    assert [part.range for part in parts] == [[0, 30521], [1, 1], [0, 0]]
    assert [part.shape for part in parts] == [["batch", 64]] * 3


def test_the_only_free_axis_of_a_state_is_the_batch() -> None:
    tensors = [
        Tensor("input", "float32", (ANY, ANY)),
        Tensor("state", "float32", (2, ANY, 128)),
        Tensor("sr", "int64", ()),
    ]
    audio, state, rate = guess_inputs(tensors, None, OnnxHints())
    assert audio.shape == ["batch", 16000]
    assert state.shape == [2, "batch", 128]
    assert (rate.shape, rate.range) == ([], [16000, 16000])


def test_pictures_for_another_input_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="'x' is float32 any x 40, which is no batch of pictures"):
        only(Tensor("x", "float32", (ANY, 40)), TableData(tmp_path))


def outputs_of(labelled: bool = False, inputs: Any = (), **pairs: Any) -> Any:
    """Guess outputs, each given as its values for 2 and for 3 inputs."""
    small = {name: values[0] for name, values in pairs.items()}
    large = {name: values[1] for name, values in pairs.items()}
    tensors = [Tensor(name, "float32", ()) for name in pairs]
    return guess_outputs(tensors, Trial(2, 3, small, large), labelled=labelled, inputs=inputs)


def rows(*shape: int, axis: int = 0) -> tuple[Any, Any]:
    """Return arrays for 2 and for 3 inputs, whose axis is put in front of ``axis``."""
    pair = []
    for count in (2, 3):
        sizes = [*shape[:axis], count, *shape[axis:]]
        pair.append(np.random.default_rng(0).normal(size=sizes).astype(np.float32))
    return pair[0], pair[1]


def test_logits_and_probabilities_are_told_apart() -> None:
    (part,), best, _ = outputs_of(labelled=True, y=rows(10))
    assert (part.type, part.steps, best) == ("classification", ["softmax", "top_k: {k: 5}"], "y")
    shares = np.full((2, 4), 0.25, np.float32), np.full((3, 4), 0.25, np.float32)
    (part,), _, _ = outputs_of(y=shares)
    assert part.steps == ["top_k: {k: 4}"]
    halves = np.full((2, 4), 0.5, np.float32), np.full((3, 4), 0.5, np.float32)
    (part,), _, _ = outputs_of(labelled=True, y=halves)
    assert part.steps == ["top_k: {k: 4}"]
    assert "no softmax" in part.comment


@pytest.mark.parametrize(
    ("name", "columns"),
    [("embedding", 128), ("class_embedding", 128), ("landmarks", 136), ("y", 640), ("output", 12)],
)
def test_numbers_that_nothing_calls_classes_are_none(name: str, columns: int) -> None:
    pairs: Any = {name: rows(columns)}
    (part,), best, _ = outputs_of(**pairs)
    assert (best, part.type, part.steps) == (None, "tensor", ())
    assert "not taken for scores of classes; where they are, give labels" in part.comment
    (part,), best, _ = outputs_of(labelled=True, **pairs)
    assert (best, part.type) == (name, "classification")


@pytest.mark.parametrize(("name", "columns"), [("logits", 10), ("y", 1000), ("Scores:0", 4)])
def test_classes_are_known_by_a_name_or_by_imagenets_number(name: str, columns: int) -> None:
    pairs: Any = {name: rows(columns)}
    (part,), best, _ = outputs_of(**pairs)
    assert (best, part.type) == (name, "classification")
    assert part.comment == "logits, as a guess: its rows do not add up to 1"
    _, best, _ = outputs_of(inputs=[(columns,)], **pairs)
    assert best is None, "an autoencoder gives as many numbers as it takes"


def test_the_axis_of_the_batch_is_found_by_two_sizes() -> None:
    parts, best, left_out = outputs_of(
        out=rows(1), stateN=rows(2, 128, axis=1), fixed=(np.zeros(4), np.zeros(4))
    )
    assert [(part.name, part.shape) for part in parts] == [
        ("out", None),
        ("stateN", [2, "batch", 128]),
    ]
    assert best is None
    assert left_out == ["fixed"]


def test_masks_and_numbers_are_known_by_their_labels() -> None:
    small, large = rows(5, 8, 9)
    tensors = [Tensor("y", "float32", ())]
    trial = Trial(2, 3, {"y": small}, {"y": large})
    (part,) = guess_masks(tensors, trial, (8, 9))
    assert (part.type, part.steps) == ("mask", ["argmax: {axis: 1}"])
    (part,) = guess_masks(tensors, trial, (5, 8))
    assert part.steps == ["argmax: {axis: 3}"]
    (part,) = guess_masks(tensors, trial, (5, 8, 9))
    assert part.steps == ()
    assert guess_masks(tensors, trial, (8, 8)) == []
    (part,) = guess_numbers(tensors, trial)
    assert (part.type, part.steps) == ("tensor", ())


def test_a_text_is_quoted_where_yaml_would_read_something_else() -> None:
    for text in ("1234567890", "1e5", "a: b", "no comment # here", "ü", "~", "true", "a\tb", "x.y"):
        assert parse(scalar(text)).value == text
    assert scalar("StatefulPartitionedCall:0") == '"StatefulPartitionedCall:0"'
    assert scalar("model.onnx") == "model.onnx"


def test_a_draft_is_a_manifest(tmp_path: Path) -> None:
    draft = Draft(
        name="m",
        task="image-classification",
        models=[ModelPart("onnxruntime", "a b.onnx", {"graph": "1" * 64}, options={"tf32": "no"})],
        inputs=[only(Tensor("x:0", "float32", (ANY, 3, ANY, ANY)))],
        outputs=[OutputPart("y", "classification", steps=["top_k: {k: 5}"], comment="c " * 60)],
        thresholds=[("latency_p50: {max: 5 ms}", "measured")],
        measured="by hand " * 30,
    )
    path = tmp_path / "m.yaml"
    path.write_text(draft.text())
    manifest = load(path).manifest
    assert manifest.models[0].sha256 == {"graph": "1" * 64}
    assert manifest.inputs[0].name == "x:0"
    assert max(map(len, draft.text().splitlines())) <= 110


def test_the_vocabulary_is_the_embeddings(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    table = numpy_helper.from_array(np.zeros((77, 4), np.float32), "table")
    ids = helper.make_tensor_value_info("ids", TensorProto.INT32, [None, None])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Cast", ["ids"], ["long"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "long"], ["y"]),
    ]
    save(
        helper.make_model(helper.make_graph(nodes, "g", [ids], [out], [table])), tmp_path / "m.onnx"
    )
    assert hints_of(tmp_path / "m.onnx").vocabulary == {"ids": 77}
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff")
    assert hints_of(tmp_path / "bad.onnx") == OnnxHints()
