"""Tests of classification: its scores, hits and F1."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mlms_predictors import Tensor

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.rows import predict_rows
from pytest_mlms.measure.evaluate.scoring import estimate_evidence, figures_of
from pytest_mlms.measure.evaluate.tasks.classification import (
    Classification,
    ClassificationEvidence,
    NumberEvidence,
    hits,
)
from pytest_mlms.measure.pipeline import Dataset, top_k

SHAPES = st.tuples(st.integers(1, 8), st.integers(2, 9))
ELEMENTS = st.sampled_from([0, 0.25, 0.5, 1])  # so few that some are equal
SCORES = arrays(np.float64, SHAPES, elements=ELEMENTS)
PIXEL = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})
LABELS = np.array([0, 1, 0, 1, 0, 1])
ARRAYS: Any = {"x": np.zeros((6, 1))}
SIX = Dataset("m.yaml:1: six.npz", (PIXEL,), ARRAYS, LABELS)
LOGITS = Output.model_validate({"name": "logits", "type": "classification", "steps": ["softmax"]})
TWO_BEST = {"name": "logits", "type": "classification", "steps": [{"top_k": {"k": 2}}]}


@given(SCORES, st.integers(1, 9), st.data())
def test_a_hit_is_a_label_among_the_top_k(values: np.ndarray, k: int, data: st.DataObject) -> None:
    rows, classes = values.shape
    label = st.integers(0, classes - 1)
    labels = data.draw(st.lists(label, min_size=rows, max_size=rows))
    expected = 0
    for row, best in enumerate(top_k(values, k).tolist()):
        expected += labels[row] in best
    assert hits(values, np.array(labels, np.uint8), k).sum() == expected


def test_a_constant_output_hits_one_class_only() -> None:
    constant = np.zeros((10, 10))
    assert hits(constant, np.arange(10), 1).sum() == 1


def evidence_of(values: Any, labels: Any, output: Output = LOGITS) -> ClassificationEvidence:
    values = np.asarray(values)
    names = [f"class {number}" for number in range(values.shape[1])]
    return ClassificationEvidence(values, np.asarray(labels), output, names)


def test_estimates_have_wilsons_interval() -> None:
    found = estimate_evidence(evidence_of(np.eye(10), [*range(9), 0]), seed=0)
    assert found["top1"].value == pytest.approx(0.9)
    assert found["top1"].low == pytest.approx(0.596, abs=1e-3)
    assert found["top5"].value == 1.0


def test_top5_needs_more_than_five_classes() -> None:
    assert set(evidence_of(np.eye(5), range(5)).shares) == {"top1"}
    assert set(evidence_of(np.eye(6), range(6)).shares) == {"top1", "top5"}


def test_macro_f1_is_the_mean_over_the_classes_that_are_there() -> None:
    # classes 0 and 1 have precision and recall 1/2 and 1, 1 and 1/2; nothing is of class 2
    scores = np.eye(3)[[0, 0, 1]]
    found = figures_of(evidence_of(scores, [0, 1, 1]))
    assert found["f1_macro"] == pytest.approx(2 / 3)
    assert [found["precision"], found["recall"]] == pytest.approx([3 / 4, 3 / 4])


@pytest.mark.slow
def test_macro_f1_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    labels = generator.integers(9, size=300)
    scores = generator.normal(size=(300, 12)) + 2 * np.eye(12)[labels]
    evidence = evidence_of(scores, labels)
    counts = np.array([np.ones(300), generator.multinomial(300, np.full(300, 1 / 300))])
    found = evidence.figures(counts)["f1_macro"]
    for sample, value in zip(counts.astype(int), found, strict=True):
        rows = np.repeat(np.arange(300), sample)
        best = scores.argmax(axis=1)[rows]
        assert value == pytest.approx(metrics.f1_score(labels[rows], best, average="macro"))


def test_an_input_is_as_wrong_as_its_label_is_below_the_best_class() -> None:
    assert evidence_of([[3.0, 1.0], [0.0, 2.5]], [0, 0]).losses.tolist() == [0.0, 2.5]


def test_predictions_are_kept_as_scores_and_in_columns() -> None:
    two = LOGITS.model_copy(update={"steps": Output.model_validate(TWO_BEST).steps})
    evidence = evidence_of(np.array([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]]), [1, 2], two)
    arrays = evidence.arrays()["probabilities.npz"]
    assert arrays["probability"].dtype == np.float32
    assert arrays["label"].tolist() == [1, 2]
    assert evidence.columns() == {
        "label": ["class 1", "class 2"],
        "class_1": ["class 1", "class 0"],
        "probability_1": ["0.7", "0.6"],
        "class_2": ["class 2", "class 2"],
        "probability_2": ["0.2", "0.3"],
    }


def test_predictions_are_ordered_by_the_models_own_values() -> None:
    steps = ["softmax", {"top_k": {"k": 2}}]
    output = Output.model_validate({**TWO_BEST, "steps": steps})
    values = np.array([[900.0, -20000.0, -10000.0], [900.0, -10000.0, -20000.0]])
    columns = evidence_of(values, [1, 2], output).columns()
    assert columns["class_2"] == ["class 2", "class 1"]
    assert columns["probability_1"] == ["1", "1"]


def test_scores_that_are_no_probabilities_are_not_called_so() -> None:
    values = np.array([[9, 200, 17], [128, 2, 64]], np.float32)
    evidence = evidence_of(values, [1, 2], Output.model_validate(TWO_BEST))
    arrays = evidence.arrays()["scores.npz"]
    assert arrays["score"].tolist() == values.tolist()
    assert list(evidence.columns()) == ["label", "class_1", "score_1", "class_2", "score_2"]


class FakePredictor:
    """A predictor that returns the next of its outputs for each batch."""

    inputs = (Tensor("x", "float32", (None, 1)),)
    outputs = (Tensor("logits", "float32", (None, 2)),)

    def __init__(self, *outputs: Any) -> None:
        self._outputs = iter(outputs)

    def predict(self, batch: Any) -> dict[str, Any]:
        return {"logits": np.asarray(next(self._outputs), np.float32)}


def classify(
    predictor: Any, dataset: Dataset, size: int, output: Output = LOGITS
) -> ClassificationEvidence:
    scorer = Classification().scorer([output], dataset)
    done = 0
    for batch in predict_rows(predictor, Inputs(dataset, {}, size), [output]):
        scorer.add({output.name: batch.rows(output.name)}, range(done, done + batch.count))
        done += batch.count
    evidence = scorer.evidence()
    assert isinstance(evidence, ClassificationEvidence)
    return evidence


def test_scores_leave_out_what_filled_the_last_batch() -> None:
    predictor: Any = FakePredictor([[1, 0]] * 4, [[0, 1]] * 4)
    found = classify(predictor, SIX, 4)
    assert len(found) == 6
    assert found.scores.argmax(axis=1).tolist() == [0, 0, 0, 0, 1, 1]
    assert found.values.argmax(axis=1).tolist() == [0, 0, 0, 0, 1, 1]
    assert found.scores.dtype == np.float32
    assert np.allclose(found.scores.sum(axis=1), 1)
    assert found.labels.tolist() == LABELS.tolist()


def test_classes_rank_by_the_logits_where_probabilities_underflow() -> None:
    logits = [0.0, -300.0, -290.0, -280.0, -270.0, -260.0, -250.0]
    predictor: Any = FakePredictor([logits] * 6)
    found = classify(predictor, SIX, 6)
    assert found.scores[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert top_k(found.values, 5)[0].tolist() == [0, 6, 5, 4, 3]
    assert found.shares["top5"].tolist() == [True, False, True, False, True, False]


def test_an_output_with_axes_of_one_is_a_table_of_scores() -> None:
    logits = np.array([[2.0, 1.0]] * 6)
    predictor: Any = FakePredictor(logits[:, :, None, None])
    found = classify(predictor, SIX, 6)
    assert found.values.tolist() == logits.tolist()
    assert np.allclose(found.scores.sum(axis=1), 1)


def test_the_first_input_whose_scores_are_not_finite_is_named() -> None:
    second = [[np.nan, 1], [np.inf, 0], [np.nan, 0], [0, 0]]
    predictor: Any = FakePredictor([[1, 0]] * 4, second)
    message = (
        "has NaN or infinity for 2 of 6 inputs, first for number 4, row 4 of m.yaml:1: six.npz;"
    )
    with pytest.raises(OutputError, match=message):
        classify(predictor, SIX, 4)


def test_an_output_that_is_no_table_of_scores_is_an_error() -> None:
    predictor: Any = FakePredictor(np.zeros((4, 2, 2)))
    message = r"output 'logits' of 4 inputs is \(4, 2, 2\); expected inputs x classes"
    with pytest.raises(OutputError, match=message):
        classify(predictor, SIX, 4)


def test_labels_that_are_no_classes_are_an_error() -> None:
    predictor: Any = FakePredictor([[1, 0]] * 6)
    later = Dataset("m.yaml:1: six.npz", (PIXEL,), ARRAYS, LABELS + 1)
    with pytest.raises(
        DatasetError,
        match="element 1: the label is 2, of labels from 1 to 2; the model has the classes 0 to 1",
    ):
        classify(predictor, later, 6)


def test_a_dataset_without_labels_has_no_accuracy() -> None:
    unlabelled = Dataset("m.yaml:1: six.npz", (PIXEL,), ARRAYS, None)
    predictor: Any = FakePredictor()
    with pytest.raises(DatasetError, match="has no array 'label'; add it"):
        classify(predictor, unlabelled, 6)


def test_the_file_of_the_first_input_that_is_not_finite_is_named() -> None:
    files = [f"cats/{number}.png" for number in range(6)]
    dataset = Dataset("m.yaml:1: photos.zip", (PIXEL,), ARRAYS, LABELS, files)
    predictor: Any = FakePredictor([[1, 0]] * 4, [[np.nan, 0]] * 4)
    with pytest.raises(OutputError, match=r"first for number 4, cats/4\.png; check"):
        classify(predictor, dataset, 4)


def test_the_batch_of_scores_is_on_the_axis_that_the_manifest_names() -> None:
    logits = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]] * 2)
    predictor: Any = FakePredictor(logits.T)
    output = LOGITS.model_copy(update={"shape": (2, "batch")})
    assert classify(predictor, SIX, 6, output).values.tolist() == logits.tolist()


def output_of(*steps: Any) -> Output:
    """Return a classification with these steps."""
    return Output.model_validate({"name": "y", "type": "classification", "steps": list(steps)})


def scored(values: Any, labels: Any, *steps: Any) -> Any:
    """Return the evidence of outputs, a batch of two at a time, against labels."""
    labels = np.asarray(labels)
    given: Any = {"x": np.zeros((len(labels), 1))}
    dataset = Dataset("m.yaml:1: d.npz", (PIXEL,), given, labels)
    scorer = Classification().scorer([output_of(*steps)], dataset)
    for first in range(0, len(labels), 2):
        rows = np.asarray(values)[first : first + 2]
        scorer.add({"y": rows}, range(first, first + len(rows)))
    return scorer.evidence()


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_numbers_of_classes_are_right_where_they_are_the_label(kind: Any, shape: Any) -> None:
    numbers = np.array([0, 3, 3, 7, 0], kind).reshape(shape)
    evidence = scored(numbers, [0, 3, 1, 7, 7], "class_numbers")
    assert isinstance(evidence, NumberEvidence)
    found = estimate_evidence(evidence, seed=0)
    assert found["top1"].value == pytest.approx(0.6)
    # F1 scores: 2/3 of class 0, 0 of 1, 2/3 of 3, 2/3 of 7
    assert found["f1_macro"].value == pytest.approx(0.5)
    assert evidence.answers() == [0, 3, 3, 7, 0]
    assert evidence.columns()["class_1"] == ["0", "3", "3", "7", "0"]
    assert evidence.losses.tolist() == [0, 0, 1, 0, 1]


@pytest.mark.parametrize("wrong", [-1, 0.5, np.nan, np.inf, 1e12])
def test_what_is_no_number_of_a_class_is_an_error(wrong: float) -> None:
    with pytest.raises(OutputError, match="which is no number of a class; leave out the step"):
        scored(np.array([0, wrong]), [0, 1], "class_numbers")


def test_scores_are_no_numbers_of_classes() -> None:
    with pytest.raises(OutputError, match=r"is \(2, 3\); expected one number an input; leave out"):
        scored(np.eye(3)[:2], [0, 1], "class_numbers")


def test_a_number_without_a_name_is_an_error(tmp_path: Any) -> None:
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    named = {"top_k": {"k": 1, "labels": str(tmp_path / "names.txt")}}
    numbers = np.array([0, 1])
    assert scored(numbers, [1, 1], "class_numbers", named).columns()["label"] == ["dog", "dog"]
    with pytest.raises(OutputError, match="has class 2, and the file of names 2 names; write one"):
        scored(numbers * 2, [1, 1], "class_numbers", named)
    with pytest.raises(DatasetError, match="the model has the classes 0 to 1; correct the labels"):
        scored(numbers, [1, 2], "class_numbers", named)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (-1, 1, 1)])
def test_one_score_is_of_class_1_where_it_is_above_the_threshold(shape: Any) -> None:
    scores = np.array([0.1, 0.5, 0.51, 0.9], np.float32)
    values = scores.reshape(shape)
    evidence = scored(values, [0, 1, 1, 0], "threshold")
    assert evidence.answers() == [0, 0, 1, 1]
    assert evidence.scores == pytest.approx(np.stack([1 - scores, scores], axis=1))
    assert estimate_evidence(evidence, seed=0)["top1"].value == 0.5
    lower = scored(values, [0, 1, 1, 0], {"threshold": {"above": 0.3}})
    assert lower.answers() == [0, 1, 1, 1]


@given(arrays(np.float32, 6, elements=st.floats(-200, 200, width=32)), st.floats(0.01, 0.99))
def test_a_logit_is_above_where_its_probability_is(logits: np.ndarray, above: float) -> None:
    evidence = scored(logits, np.zeros(6, int), "sigmoid", {"threshold": {"above": above}})
    edge = np.log(above / (1 - above))
    sure = np.abs(logits - edge) > 1e-9
    assert (np.array(evidence.answers()) == (logits > edge))[sure].all()
    assert (evidence.scores[:, 1] >= 0).all()
    assert evidence.scores.sum(axis=1) == pytest.approx(np.ones(6))


def test_logits_without_a_sigmoid_are_an_error_at_the_threshold_of_probabilities() -> None:
    advice = r"\[sigmoid, threshold\]' for logits, or 'threshold: {above: …}' for other scores"
    for step in ("threshold", {"threshold": {"above": 0.5}}):
        with pytest.raises(OutputError, match=f"of -2 to 0.5, which are no prob.*{advice}"):
            scored(np.array([0.5, -2.0]), [0, 1], step)
    margins = scored(np.array([0.5, -2.0]), [1, 0], {"threshold": {"above": 0}})
    assert margins.answers() == [1, 0]
    assert margins.scores.tolist() == [[-0.5, 0.5], [2.0, -2.0]]


def test_bytes_are_compared_with_the_threshold_as_the_numbers_that_they_stand_for() -> None:
    bytes_ = np.array([[0], [127], [128], [129]], np.uint8)
    with pytest.raises(OutputError, match="write 'dequantize: {scale: …, zero_point: …}' before"):
        scored(bytes_, [0, 0, 0, 1], "threshold")
    evidence = scored(bytes_, [0, 0, 0, 1], {"dequantize": {"scale": 1 / 256}}, "threshold")
    assert evidence.answers() == [0, 0, 0, 1]


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_one_number_without_a_step_that_says_what_it_is_is_an_error(shape: Any) -> None:
    advice = r"write 'steps: \[threshold\]' where it is the probability of class 1"
    with pytest.raises(OutputError, match=advice):
        scored(np.zeros(shape), [0, 0, 0, 0])


def test_dequantised_scores_are_probabilities() -> None:
    values = np.array([[-128, 127], [-28, 27]], np.int8)
    step = {"dequantize": {"scale": 1 / 255, "zero_point": -128}}
    found = scored(values, [1, 0], step).arrays()["probabilities.npz"]["probability"]
    assert found == pytest.approx(np.array([[0, 1], [100 / 255, 155 / 255]]))


SOFTMAX_8 = np.random.default_rng(8).dirichlet(np.ones(5), 300)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 5])
def test_quantities_of_scores_are_those_of_scikit_learn(classes: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(classes)
    labels = generator.integers(classes, size=300)
    values = generator.normal(size=(300, classes)) + 1.5 * np.eye(classes)[labels]
    evidence = evidence_of(values, labels)
    counts = np.array([np.ones(300), generator.multinomial(300, np.full(300, 1 / 300))])
    found = evidence.figures(counts)
    average = "binary" if classes == 2 else "macro"
    for index, sample in enumerate(counts.astype(int)):
        rows = np.repeat(np.arange(300), sample)
        own, best = labels[rows], values.argmax(axis=1)[rows]
        shares = np.exp(values[rows])
        shares /= shares.sum(axis=1, keepdims=True)
        scores = shares[:, 1] if classes == 2 else shares
        ours = {name: value[index] for name, value in found.items()}
        assert ours == {
            "f1_macro": pytest.approx(metrics.f1_score(own, best, average="macro")),
            "precision": pytest.approx(metrics.precision_score(own, best, average=average)),
            "recall": pytest.approx(metrics.recall_score(own, best, average=average)),
            "auc": pytest.approx(metrics.roc_auc_score(own, scores, multi_class="ovr")),
            "average_precision": pytest.approx(metrics.average_precision_score(own, scores)),
            "ece": pytest.approx(ours["ece"]),
        }


def test_many_scores_have_the_areas_of_all_inputs_and_nearly_those_of_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(1)
    labels = generator.integers(4, size=2000)
    values = generator.normal(size=(2000, 4)) + np.eye(4)[labels]
    exact = estimate_evidence(evidence_of(values, labels), seed=0)
    module = import_module("pytest_mlms.measure.evaluate.tasks.classification")
    monkeypatch.setattr(module, "_MOST_SCORES", 0)
    linear = estimate_evidence(evidence_of(values, labels), seed=0)
    for name in ("auc", "average_precision"):
        assert linear[name].value == pytest.approx(exact[name].value)
        width = exact[name].high - exact[name].low
        assert linear[name].low == pytest.approx(exact[name].low, abs=0.1 * width)
        assert linear[name].high == pytest.approx(exact[name].high, abs=0.1 * width)


def test_areas_of_logits_are_of_probabilities_that_are_not_rounded() -> None:
    values = np.array([[0.0, 900.0], [0.0, 800.0], [0.0, 700.0], [0.0, 600.0]])
    found = figures_of(evidence_of(values, [1, 1, 0, 0]))
    assert found["auc"] == 1
    one = scored(values[:, 1], [1, 1, 0, 0], "sigmoid", "threshold")
    assert figures_of(one)["auc"] == 1


def test_two_logits_without_softmax_are_ranked_by_their_difference() -> None:
    values = np.array([[9.0, 3.0], [0.0, 1.0], [0.0, 2.0], [9.0, 4.0]])
    found = figures_of(scored(values, [0, 1, 1, 0]))
    assert found["auc"] == 1
    assert "ece" not in found


def test_quantities_of_scores_without_probabilities_say_what_to_write() -> None:
    values = np.array([[9.0, 3.0, 1.0], [0.0, 1.0, 5.0]])
    evidence = scored(values, [0, 1])
    assert set(evidence.unmeasured) == {"auc", "average_precision", "ece"}
    assert "has no probabilities; write the step 'softmax'" in evidence.unmeasured["auc"]
    margins = scored(np.array([-3.0, 2.0]), [0, 1], {"threshold": {"above": 0}})
    assert set(margins.unmeasured) == {"ece"}
    assert "write the step 'sigmoid'" in margins.unmeasured["ece"]
    assert set(scored(np.array([0, 1]), [0, 1], "class_numbers").unmeasured) == {
        *("auc", "average_precision", "ece")
    }


def test_bytes_of_softmax_are_probabilities_though_their_sums_are_rounded() -> None:
    bytes_ = np.clip(np.round(SOFTMAX_8 * 256), 0, 255).astype(np.uint8)
    labels = np.arange(300) % 5
    evidence = scored(bytes_, labels, {"dequantize": {"scale": 1 / 256}})
    assert not evidence.unmeasured
    exact = figures_of(scored(SOFTMAX_8, labels))
    found = figures_of(evidence)
    for name in ("auc", "average_precision", "ece"):
        assert found[name] == pytest.approx(exact[name], abs=0.02)


def test_precision_and_recall_are_of_class_1_of_two() -> None:
    for evidence in (
        scored(np.array([0.9, 0.8, 0.2, 0.1, 0.3]), [1, 0, 1, 0, 1], "threshold"),
        scored(np.array([1, 1, 0, 0, 0]), [1, 0, 1, 0, 1], "class_numbers"),
    ):
        found = figures_of(evidence)
        assert found["precision"] == pytest.approx(1 / 2)
        assert found["recall"] == pytest.approx(1 / 3)


def test_what_one_class_alone_can_not_tell_is_undefined() -> None:
    found = estimate_evidence(scored(np.array([0.1, 0.2, 0.3]), [0, 0, 0], "threshold"), seed=0)
    for name in ("auc", "average_precision", "precision", "recall"):
        assert found[name].lacking
    none = estimate_evidence(scored(np.array([0.1, 0.2, 0.3]), [0, 1, 0], "threshold"), seed=0)
    assert (none["precision"].value, none["recall"].value) == (0, 0)


@pytest.mark.parametrize(
    ("values", "label", "names"),
    [
        (np.eye(2)[[0, 1, 1]], 0, ["auc", "average_precision", "precision", "recall"]),
        (np.eye(2)[[0, 1, 1]], 1, ["auc", "average_precision"]),
        (np.eye(4)[[0, 1, 1]], 3, ["auc", "average_precision"]),
        (np.array([0.1, 0.9, 0.9]), 1, ["auc", "average_precision"]),
    ],
)
def test_labels_of_one_class_measure_no_areas_whatever_the_scores_are(
    values: Any, label: int, names: list[str]
) -> None:
    evidence = scored(values, [label] * 3, *(["threshold"] if values.ndim == 1 else []))
    assert sorted(evidence.unmeasured) == names
    assert evidence.unmeasured["auc"].startswith(f"all labels are class {label}; add inputs")
    assert all(np.isnan(figures_of(evidence)[name]) for name in names)


def test_numbers_of_classes_keep_their_quantities_where_a_model_gives_a_third_class() -> None:
    labels = [0, 1, 1, 0, 0]
    two = figures_of(scored(np.array([0, 1, 0, 1, 0]), labels, "class_numbers"))
    three = figures_of(scored(np.array([0, 1, 0, 1, 7]), labels, "class_numbers"))
    assert (three["precision"], three["recall"]) == (two["precision"], two["recall"])


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_probabilities_without_their_background_are_probabilities(kind: Any) -> None:
    shares = SOFTMAX_8 if kind is np.float32 else np.floor(SOFTMAX_8 * 255)
    steps: list[Any] = [{"drop_background": {"index": 0}}]
    if kind is np.uint8:
        steps.insert(0, {"dequantize": {"scale": 1 / 255}})
    evidence = scored(shares.astype(kind), np.arange(300) % 4, *steps)
    assert not evidence.unmeasured
    best = SOFTMAX_8[:, 1:]
    gaps = (best.argmax(axis=1) == np.arange(300) % 4).mean() - best.max(axis=1).mean()
    assert figures_of(evidence)["ece"] >= abs(gaps) - 0.01


@pytest.mark.parametrize("steps", [[], ["softmax"]])
def test_whole_numbers_are_no_probabilities_until_a_step_says_what_they_stand_for(
    steps: list[Any],
) -> None:
    bytes_ = np.round(SOFTMAX_8 * 255).astype(np.uint8)
    reasons = scored(bytes_, np.arange(300) % 5, *steps).unmeasured
    assert set(reasons) == {"auc", "average_precision", "ece"}
    assert "has whole numbers; write 'dequantize: {scale" in reasons["ece"]


def test_a_softmax_of_probabilities_measures_no_calibration() -> None:
    reasons = scored(SOFTMAX_8, np.arange(300) % 5, "softmax").unmeasured
    assert "has probabilities before its softmax; leave out the step" in reasons["ece"]


@pytest.mark.parametrize("steps", [[], ["class_numbers"]])
def test_classes_of_minus_one_and_one_are_told_to_count_from_0(steps: list[Any]) -> None:
    values = np.array([-1, 1, 1]) if steps else np.eye(2)
    kind = OutputError if steps else DatasetError
    with pytest.raises(kind, match=r"classes count from 0; (write|give) 0 for -1"):
        scored(values, [1, -1, 1][: len(values)], *steps)
