"""Labels that are scored by the outputs of a model, or refused with what to write."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.author.draft.data import ArrayData, recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.labels import check_labelled, class_numbers
from pytest_mlms.author.draft.opening import DraftRequest
from pytest_mlms.author.draft.parts import Draft
from pytest_mlms.cli.main import main
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest import load
from pytest_mlms.measure.evaluate.tasks.classification import ClassificationEvidence
from tests.author.draft.test_drafting import request

FLOAT, BYTES, SIGNED = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8
LONG = TensorProto.INT64
CLASSES = 3
ROWS = 12
LABELS = np.arange(ROWS) % CLASSES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    return tmp_path


def save_model(*nodes: onnx.NodeProto, outputs: dict[str, Any]) -> None:
    """Write model.onnx, which takes x of three columns, whose scores are x itself."""
    values = [
        helper.make_tensor_value_info(name, kind, ["N", *sizes])
        for name, (kind, *sizes) in outputs.items()
        if kind is not None
    ]
    for name, (kind, *_) in outputs.items():
        if kind is None:  # a map of each input
            number = helper.make_tensor_type_proto(FLOAT, [])
            maps = helper.make_sequence_type_proto(helper.make_map_type_proto(LONG, number))
            values.append(helper.make_value_info(name, maps))
    x = helper.make_tensor_value_info("x", FLOAT, ["N", CLASSES])
    weights = [
        numpy_helper.from_array(np.ones((CLASSES, 1), np.float32), "ones"),
        numpy_helper.from_array(np.array(0.1, np.float32), "scale"),
        numpy_helper.from_array(np.array(3, np.uint8), "zero"),
        numpy_helper.from_array(np.array(-3, np.int8), "signed_zero"),
    ]
    graph = helper.make_graph(nodes, "g", [x], values, weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "model.onnx")


SOFTMAX = helper.make_node("Softmax", ["x"], ["prob"])
BEST = helper.make_node("ArgMax", ["x"], ["answer"], axis=1, keepdims=0)
ZIPMAP = helper.make_node(
    "ZipMap", ["prob"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]
)
ONE = helper.make_node("MatMul", ["x", "ones"], ["one"])
QUANTISED = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["bytes"])
SIGNED_ONE = helper.make_node("QuantizeLinear", ["x", "scale", "signed_zero"], ["bytes"])


def save_data(label: Any = LABELS, **others: Any) -> None:
    """Write data.npz, whose rows have their largest number at their class."""
    arrays = {"x": np.eye(CLASSES, dtype=np.float32)[LABELS], **others}
    if label is not None:
        arrays["label"] = label
    np.savez("data.npz", **arrays)


def drafted(task: str | None = None) -> Draft:
    """Return the draft for the model and the data."""
    asked: DraftRequest = request("model.onnx", said=[])
    return draft_manifest(
        replace(asked, data=recognise_data(Path("data.npz")), task=task, replaces=True)
    )


def written() -> set[str]:
    """Return what is in the folder, beside that of pytest-benchmark where it is installed."""
    return {path.name for path in Path().iterdir()} - {".benchmarks"}


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the sentence with which labels are refused; nothing is written."""
    before = written()
    assert main(["init", "model.onnx", "--data", "data.npz", *words]) == 2
    assert written() == before
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("words", [(), ("--task", "classification")])
def test_maps_alone_are_refused_with_what_mends_them(
    capsys: pytest.CaptureFixture[str], words: Any
) -> None:
    save_model(SOFTMAX, ZIPMAP, outputs={"maps": (None,)})
    save_data()
    error = refusal(capsys, *words)
    assert "model.onnx: 'load' raised ValueError: no output is an array of numbers or tex" in error
    assert "export its scores as one: to_onnx(model, X, options={'zipmap': False})" in error


@pytest.mark.parametrize("words", [(), ("--task", "classification")])
def test_maps_beside_an_output_of_another_form_are_refused_with_what_mends_them(
    capsys: pytest.CaptureFixture[str], words: Any
) -> None:
    pairs = helper.make_node("Unsqueeze", ["x", "axis"], ["pairs"])
    axis = helper.make_node("Constant", [], ["axis"], value_ints=[1])
    wide = helper.make_node("Concat", ["pairs", "pairs"], ["wide"], axis=1)
    outputs = {"wide": (FLOAT, 2, CLASSES), "maps": (None,)}
    save_model(SOFTMAX, ZIPMAP, axis, pairs, wide, outputs=outputs)
    save_data()
    error = refusal(capsys, *words)
    assert "data.npz has labels, and no output of the model has a score for each class" in error
    assert "an array, with skl2onnx: to_onnx(model, X, options={'zipmap': False})" in error


def scored_part(draft: Draft) -> tuple[str, list[str], str]:
    """Return the name, the steps and the comment of the only classification of a draft.

    The draft is read as the manifest that it will be.
    """
    Path("m.yaml").write_text(draft.text())
    assert load(Path("m.yaml")).manifest.has_accuracy
    (part,) = [part for part in draft.outputs if part.type == "classification"]
    return part.name, list(part.steps), part.comment


@pytest.mark.parametrize("label", [LABELS, LABELS.astype(np.float32), LABELS[:, np.newaxis]])
def test_the_number_of_a_class_is_scored_where_there_are_no_scores(label: Any) -> None:
    save_data(label)
    save_model(BEST, outputs={"answer": (LONG,)})
    draft = drafted()
    assert (draft.task, draft.classes) == ("classification", CLASSES)
    name, steps, comment = scored_part(draft)
    assert (name, steps) == ("answer", ["class_numbers", "top_k: {k: 1}"])
    save_model(SOFTMAX, BEST, ZIPMAP, outputs={"answer": (LONG,), "maps": (None,)})
    draft = drafted()
    assert "maps" in draft.task_comment
    name, _, comment = scored_part(draft)
    assert name == "answer"
    assert "export them as an array by to_onnx(model, X, options={'zipmap': False})" in comment


def test_the_number_of_a_class_is_the_one_that_is_called_so() -> None:
    other = helper.make_node("ArgMin", ["x"], ["count"], axis=1, keepdims=0)
    save_model(other, BEST, outputs={"count": (LONG,), "answer": (LONG,)})
    save_data()
    assert scored_part(drafted())[0] == "answer"


def test_several_whole_numbers_are_refused_where_no_name_tells_the_class(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = helper.make_node("ArgMin", ["x"], ["a"], axis=1, keepdims=0)
    second = helper.make_node("ArgMax", ["x"], ["b"], axis=1, keepdims=0)
    save_model(first, second, outputs={"a": (LONG,), "b": (LONG,)})
    save_data()
    assert "no output of the model has a score for each class" in refusal(capsys)


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.float64])
def test_one_score_is_of_class_1_of_two(kind: Any) -> None:
    save_model(ONE, outputs={"one": (FLOAT, 1)})
    save_data((LABELS % 2).astype(kind))
    name, steps, comment = scored_part(drafted())
    assert (name, steps) == ("one", ["threshold: {above: 0.5}", "top_k: {k: 2}"])
    assert comment.startswith("a guess: the probability of class 1")
    save_data((LABELS % 2).astype(kind), x=np.eye(CLASSES, dtype=np.float32)[LABELS] * -3)
    _, steps, comment = scored_part(drafted())
    assert steps == ["sigmoid", "threshold: {above: 0.5}", "top_k: {k: 2}"]
    assert comment.startswith("a guess: the logit of class 1")
    assert drafted("regression").task == "regression"


def test_one_score_tells_no_more_than_two_classes(capsys: pytest.CaptureFixture[str]) -> None:
    save_model(ONE, outputs={"one": (FLOAT, 1)})
    save_data()
    error = refusal(capsys, "--task", "classification")
    assert "'one' has one score for each input, which tells two classes, 0 and 1; export" in error


def test_whole_numbers_are_regressed_on_where_the_model_gives_one_number() -> None:
    save_model(ONE, outputs={"one": (FLOAT, 1)})
    for label in (LABELS * 50, LABELS - 7, LABELS.astype(np.float32)):
        save_data(label)
        draft = drafted()
        assert (draft.task, [part.type for part in draft.outputs]) == ("regression", ["tensor"])


def test_whole_numbers_that_may_be_classes_or_numbers_ask_for_the_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hidden = helper.make_node("Mul", ["x", "scale"], ["hidden"])
    save_model(hidden, ONE, outputs={"hidden": (FLOAT, CLASSES), "one": (FLOAT, 1)})
    for label in (LABELS, LABELS[:, np.newaxis], LABELS % 2):
        save_data(label)
        problem = "may be classes, by 'hidden', or numbers, by 'one'; say which: --task class"
        assert problem in refusal(capsys)
    save_data(LABELS * 50)
    advice = "correct the labels, or write --task regression to compare them with 'one'"
    found = "has labels up to 100, and the model gives 'hidden' 3 numbers, 'one' 1 number"
    assert f"{found}; {advice}" in refusal(capsys)
    save_data()
    assert [part.name for part in drafted("regression").outputs] == ["one", "hidden"]
    types = {part.name: part.type for part in drafted("classification").outputs}
    assert types == {"hidden": "classification", "one": "tensor"}


def test_whole_numbers_are_classes_beside_one_number_where_a_name_or_sums_say_so() -> None:
    scores = helper.make_node("Identity", ["x"], ["logits"])
    for node, name in ((scores, "logits"), (SOFTMAX, "prob")):
        save_model(node, ONE, outputs={name: (FLOAT, CLASSES), "one": (FLOAT, 1)})
        save_data()
        types = {part.name: part.type for part in drafted().outputs}
        assert types == {name: "classification", "one": "tensor"}


def test_classes_as_floats_beside_a_confidence_ask_for_the_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_model(SOFTMAX, ONE, outputs={"prob": (FLOAT, CLASSES), "one": (FLOAT, 1)})
    for label in (LABELS.astype(np.float32), LABELS[:, np.newaxis].astype(np.float64)):
        save_data(label)
        problem = "may be classes, by 'prob', or numbers, by 'one'; say which: --task class"
        assert problem in refusal(capsys)
    assert drafted("classification").task == "classification"
    for label in (LABELS + 0.5, LABELS * 50.0):
        save_data(label)
        assert drafted().task == "regression"


def test_the_output_that_numbers_are_scored_by_is_a_guess_where_several_may_be() -> None:
    other = helper.make_node("MatMul", ["x", "ones"], ["other"])
    save_model(ONE, other, outputs={"one": (FLOAT, 1), "other": (FLOAT, 1)})
    save_data(LABELS * 50.0)
    comments = {part.name: part.comment for part in drafted().outputs}
    assert comments["one"].startswith("a guess: scored, as the first of 2 as long as a label")
    assert "scored" not in comments["other"]
    assert comments["one"] in drafted().text()


def test_an_embedding_has_the_classes_only_where_nothing_else_has() -> None:
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in ("embedding", "dense_2")]
    save_model(*nodes, outputs={"embedding": (FLOAT, CLASSES), "dense_2": (FLOAT, CLASSES)})
    save_data()
    types = {part.name: part.type for part in drafted().outputs}
    assert types == {"embedding": "tensor", "dense_2": "classification"}


@pytest.mark.parametrize(
    "label",
    [
        LABELS.astype(np.float64),
        np.eye(CLASSES)[LABELS],
        np.eye(CLASSES, dtype=np.uint8)[LABELS],
        LABELS[:, np.newaxis],
    ],
)
def test_classes_in_another_form_are_written_as_their_numbers(label: Any) -> None:
    save_model(SOFTMAX, BEST, outputs={"answer": (LONG,), "prob": (FLOAT, CLASSES)})
    save_data(label)
    draft = drafted()
    assert draft.task == "classification"
    assert [part.type for part in draft.outputs] == ["tensor", "classification"]
    assert draft.dataset is not None
    with np.load(draft.dataset.source) as file:
        assert file["label"].dtype == np.int64
        assert file["label"].tolist() == LABELS.tolist()
        assert file["x"].shape == (ROWS, CLASSES)
    path = Path("m.yaml")
    path.write_text(draft.text())
    assert load(path).manifest.has_accuracy


@pytest.mark.parametrize("kind", [BYTES, SIGNED])
def test_scores_of_bytes_without_a_scale_are_ranked_as_they_are(kind: int) -> None:
    node = helper.make_node("Cast", ["x"], ["bytes"], to=kind)
    save_model(node, outputs={"bytes": (kind, CLASSES)})
    save_data()
    (part,) = drafted().outputs
    assert (part.type, part.steps) == ("classification", ["top_k: {k: 3}"])
    assert "quantised scores" in part.comment


@pytest.mark.parametrize(
    ("node", "kind", "zero"), [(QUANTISED, BYTES, 3), (SIGNED_ONE, SIGNED, -3)]
)
def test_scores_of_bytes_stand_for_numbers_by_their_scale(node: Any, kind: int, zero: int) -> None:
    save_model(node, outputs={"bytes": (kind, CLASSES)})
    save_data()
    _, steps, comment = scored_part(drafted())
    step = f"dequantize: {{scale: 0.100000001, zero_point: {zero}}}"
    assert steps == [step, "softmax", "top_k: {k: 3}"]
    assert comment.startswith("logits, as a guess")


def test_one_score_of_bytes_is_compared_with_the_threshold_by_its_scale() -> None:
    share = helper.make_node("QuantizeLinear", ["one", "scale", "signed_zero"], ["bytes"])
    save_model(ONE, share, outputs={"bytes": (SIGNED, 1)})
    save_data(LABELS % 2)
    _, steps, _ = scored_part(drafted())
    assert steps[0] == "dequantize: {scale: 0.100000001, zero_point: -3}"
    assert steps[1:3] == ["sigmoid", "threshold: {above: 0.5}"]


def test_a_regression_of_bytes_is_of_what_they_stand_for() -> None:
    share = helper.make_node("QuantizeLinear", ["one", "scale", "signed_zero"], ["bytes"])
    save_model(ONE, share, outputs={"bytes": (SIGNED, 1)})
    save_data(LABELS + 0.5)
    draft = drafted()
    assert draft.task == "regression"
    (part,) = draft.outputs
    assert part.steps == ["dequantize: {scale: 0.100000001, zero_point: -3}"]


def test_the_loss_of_bytes_does_not_overflow() -> None:
    values = np.array([[127, -128]], np.int8)
    evidence = ClassificationEvidence(values, np.array([1]), None, [])  # type: ignore[arg-type]
    assert evidence.losses.tolist() == [255.0]


@pytest.mark.slow  # 8 s
def test_scores_in_another_order_than_the_labels_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("pytest_mlms.author.draft.measuring"), "_PROCESSES", 1)
    save_model(SOFTMAX, outputs={"prob": (FLOAT, CLASSES)})
    rows = np.tile(np.eye(CLASSES, dtype=np.float32), (10, 1))
    np.savez("data.npz", x=rows, label=(rows.argmax(axis=1) + 1) % CLASSES)
    assert "top1 0.00 % is below chance (33.33 %, one of 3 classes)" in refusal(capsys)


@pytest.mark.parametrize(
    ("label", "others", "message"),
    [
        (None, {"target": LABELS}, "has no array 'label', and 'target' is no input of the model"),
        (LABELS.astype(str), {}, "has the array 'label' of <U21, not of numbers; save numbers"),
        (np.int64(1), {}, "can't be read: 'label' is one number, not one for each input; write"),
        (LABELS + 1, {}, "has labels up to 3, and the model gives 'prob' 3 numbers; correct"),
        (LABELS - 1, {}, "has 1 number as the label of an input, and the model gives 'prob' 3"),
        (LABELS + 0.5, {}, "has 1 number as the label of an input, and the model gives 'prob' 3"),
    ],
)
def test_labels_that_do_not_fit_are_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], label: Any, others: Any, message: str
) -> None:
    save_model(SOFTMAX, outputs={"prob": (FLOAT, CLASSES)})
    save_data(label, **others)
    assert f"data.npz {message}" in refusal(capsys)


def test_a_model_with_classes_asks_for_labels_of_data() -> None:
    with pytest.raises(MlmsError, match="d.npz has no array 'label', and the model has classes"):
        check_labelled(ArrayData(Path("d.npz"), {"x": (np.dtype(np.float32), (2, 3))}))


@given(st.lists(st.integers(0, 6), min_size=1), st.sampled_from("b?hlLfd"))
def test_numbers_of_classes_are_the_same_in_each_form(classes: list[int], kind: str) -> None:
    numbers = np.array(classes)
    if kind == "?":
        numbers %= 2
    for labels in (numbers.astype(kind), numbers.astype(kind)[:, np.newaxis]):
        found = class_numbers(labels)
        assert found is not None
        assert found.tolist() == numbers.tolist()
    found = class_numbers(np.eye(7)[numbers].astype(kind))
    assert found is not None
    assert found.tolist() == numbers.tolist()


@pytest.mark.parametrize(
    "labels", [[0.5], [-1], [np.nan], [np.inf], [[0, 0]], [[1, 1]], [["a"]], [[[0, 1]]]]
)
def test_what_is_no_number_of_a_class_is_none(labels: Any) -> None:
    assert class_numbers(np.array(labels)) is None
