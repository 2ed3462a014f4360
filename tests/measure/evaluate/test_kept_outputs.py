"""Outputs that items share, and those of the reference."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import AgentError, OutputError, Unavailable
from pytest_mlms.measure.agent.process import Array, Refused
from pytest_mlms.measure.evaluate.closeness import Tolerance
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.kept_outputs import (
    DepartureSearch,
    KeptOutputs,
    OutputsKeeper,
    OutputsStore,
    Reference,
    find_departure,
    search_departure,
)
from tests.support.project import PREDICTORS, Project

PREDICTOR: Any = None


def kept(rows: int = 5) -> KeptOutputs:
    """Return outputs of 8 bytes a row, computed in batches of 2."""
    values = np.arange(rows, dtype=np.float64)
    inputs = Inputs(None, {}, 2)
    return KeptOutputs({"y": values}, inputs, PREDICTOR, "test_accuracy[x]", "accuracy")


def test_the_rows_come_in_the_batches_that_they_were_computed_in() -> None:
    assert [rows["y"].tolist() for rows in kept().batches(["y"])] == [[0, 1], [2, 3], [4]]


def test_what_was_used_longest_ago_goes_first() -> None:
    store = OutputsStore(most_bytes=100)
    for key in ("a", "b"):
        store.keep(key, kept())
    assert store.get("a") is not None
    store.keep("c", kept())
    assert store.get("b") is None
    assert store.get("a") is not None
    assert store.get("c") is not None


def test_outputs_that_are_kept_again_replace_the_others() -> None:
    store = OutputsStore(most_bytes=100)
    store.keep("a", kept())
    again = kept()
    store.keep("a", again)
    assert store.get("a") is again


def test_outputs_that_are_too_large_are_not_kept() -> None:
    store = OutputsStore(most_bytes=39)
    store.keep("a", kept())
    assert store.get("a") is None


def test_outputs_without_a_key_are_not_kept() -> None:
    store = OutputsStore()
    store.keep(None, kept())
    assert store.get(None) is None


class FakeBatch:
    """A batch whose outputs are given, or an error."""

    def __init__(self, found: Array | Exception) -> None:
        self._found = found

    def rows(self, name: str) -> Array:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def arrays_of(*found: Array | Exception, most_bytes: int = 1000) -> Any:
    keeper = OutputsKeeper(["y"], most_bytes)
    for rows in found:
        batch: Any = FakeBatch(rows)
        keeper.add(batch)
    return keeper.arrays()


TWO = np.ones((2, 3))


def test_a_keeper_has_the_rows_of_all_batches() -> None:
    assert arrays_of(TWO, 2 * TWO[:1])["y"].tolist() == [[1] * 3, [1] * 3, [2] * 3]


@pytest.mark.parametrize(
    "wrong", [OutputError("y has no rows"), np.ones((2, 4)), np.ones((2, 3), np.float32)]
)
def test_outputs_that_cannot_be_kept_stop_no_item(wrong: Any) -> None:
    assert arrays_of(TWO, wrong, TWO) is None


def test_a_keeper_gives_up_where_there_are_too_many() -> None:
    assert arrays_of(TWO, TWO, most_bytes=50) is None


def test_a_full_disk_stops_no_item(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert arrays_of(TWO) is None


MODEL = """
  - framework: {name}
    graph: digits_cnn.onnx
    sha256: 237cb7d43b2c3390032ae68b3c9f9d5f570a7620e6614908a597254d68566f63
    options: {options}
"""


class Pair:
    """The digits network by two frameworks, both plain numpy.

    The second one is compared with the first, "plain".
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self._predictors = project.path / "more"
        self._predictors.mkdir()
        self._use_plain_models()
        self._use_few_inputs()

    def _use_plain_models(self) -> None:
        self.project.edit("[1, 8, 64]", "[16]")
        head, models_and_rest = self.project.manifest.read_text().split("models:")
        _, inputs_and_rest = models_and_rest.split("inputs:")
        middle, _ = inputs_and_rest.split("thresholds:")
        models = MODEL.format(name="plain", options={})
        agreement = "thresholds:\n  agreement: {reference: plain}\n"
        text = f"{head}models:{models}inputs:{middle}{agreement}"
        self.project.manifest.write_text(text)

    def _use_few_inputs(self) -> None:
        data = np.load(self.project.folder / "digits_test.npz")
        few = self.project.path / "few.npz"
        np.savez(few, image=data["image"][:40], label=data["label"][:40])
        self.project.replace_file("digits_test.npz", few.read_bytes())

    def add(self, name: str, **options: Any) -> None:
        """Add a framework that computes the same as plain, but for its options."""
        code = (PREDICTORS / "plain.py").read_text()
        (self._predictors / f"{name}.py").write_text(code)
        model = MODEL.format(name=name, options=options)
        self.project.edit("models:\n", f"models:{model}")

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.project.run("--mlms-predictors=more", "-k", "agreement", *arguments)

    def item(self) -> dict[str, Any]:
        """Return the only item of the last run's results."""
        (item,) = self.project.items()
        return item


@pytest.fixture
def pair(project: Project) -> Pair:
    return Pair(project)


def lines_below(result: pytest.RunResult, title: str) -> list[str]:
    """Return the lines of the output below the one that has a title."""
    for number, line in enumerate(result.outlines):
        if title in line:
            return result.outlines[number + 1 :]
    raise AssertionError(f"no line has {title!r}")


def test_a_stack_that_computes_the_same_passes_with_its_differences(pair: Pair) -> None:
    pair.add("same")
    result = pair.run("--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    item = pair.item()
    assert item["nodeid"] == "manifests/digits.yaml::test_agreement[same-cpu]"
    assert item["reference"]["framework"] == "plain"
    assert item["reference"]["versions"]["plain"] == "1.0"
    estimates = item["estimates"]
    assert estimates["deviation"]["value"] == estimates["difference_max"]["value"] == 0
    assert estimates["same_top1"]["value"] == 1
    assert estimates["same_top1"]["low"] < 1
    assert estimates["kl_max"]["value"] == pytest.approx(0, abs=1e-12)
    assert estimates["kl_max"]["replicates"] == 40
    properties = {}
    for element in ElementTree.parse("junit.xml").iter("property"):
        properties[element.get("name")] = element.get("value")
    assert float(properties["mlms_deviation"] or -1) == 0
    header, row = lines_below(result, "mlms: agreement")[:2]
    assert header.split("  ")[0] == "verdict"
    assert row.startswith("PASSED")
    assert len(header) <= 100
    assert len(row) <= 100


def test_a_stack_that_departs_fails_with_the_worst_input_and_the_first_layer(pair: Pair) -> None:
    pair.add("other", off="conv2d_2")
    before, _ = pair.project.manifest.read_text().split("agreement:")
    line = before.count("\n") + 1
    result = pair.run()
    result.assert_outcomes(failed=1)
    count = "40 of 40 inputs differ from it by more than 1e-05 + 0.0001 |reference|"
    result.stdout.fnmatch_lines(
        [
            "*: deviation is not at most 1.00: measured *, over 40 inputs",
            f"  limit set by manifests/digits.yaml:{line}",
            f"the reference is plain 1.0 on cpu; {count}",
            "  worst input: number *, label *, best class *, the reference's *",
            "    logits[[]*[]] is *, the reference's *",
            "  first layer that departs: 'conv2d_2', by up to 0.5 of *; those up to 'relu_1' agree",
        ]
    )
    item = pair.item()
    assert item["verdict"] == "FAILED"
    with (pair.project.results / item["artifacts"]["differences.csv"]).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    largest = max(float(row["difference"]) for row in rows)
    kept = np.load(pair.project.results / item["artifacts"]["outputs.npz"])
    kept_differences = np.abs(kept["logits"].astype(float) - kept["reference_logits"])
    assert kept_differences.max() == pytest.approx(largest)
    assert item["estimates"]["difference_max"]["value"] == pytest.approx(largest)
    assert len(item["logs"]) == 2


def test_the_reference_is_computed_once_for_all_that_are_compared_with_it(pair: Pair) -> None:
    pair.add("one")
    pair.add("two")
    pair.run().assert_outcomes(passed=2)
    logs = (pair.project.results / "agents").glob("plain-*")
    assert len(list(logs)) == 1


STACKS = """
plain: {framework: plain, interpreter: current, threads: 1}
one: {framework: same, interpreter: current}
"""


def test_a_reference_that_is_not_chosen_runs_on_the_declared_stack_of_its_name(pair: Pair) -> None:
    pair.add("same")
    (pair.project.path / "stacks.yaml").write_text(STACKS)
    pair.run("--mlms-stack=one").assert_outcomes(passed=1)
    item = pair.item()
    assert item["case"] == "one-cpu"
    assert item["reference"]["stack"] == "plain"
    pair.run("--mlms-stack=one", "--mlms-stack=here").assert_outcomes(passed=2)
    assert {item["reference"]["stack"] for item in pair.project.items()} == {"here"}


def test_an_interpreter_without_the_reference_is_compared_with_the_one_that_runs_pytest(
    pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pair.add("same")
    link = tmp_path_factory.mktemp("bin") / "python"
    link.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    link.chmod(0o755)
    pair.run(f"--mlms-stack={link}").assert_outcomes(passed=2)
    items = pair.project.items()
    assert {item["framework"] for item in items} == {"plain", "same"}
    assert {item["stack"]["name"] for item in items} == {str(link)}
    assert {item["reference"]["stack"] for item in items} == {"here"}


def test_users_tests_may_name_the_fixtures_in_any_order(pair: Pair) -> None:
    pair.add("same")
    pair.project.pytester.makepyfile(
        test_own="""
import numpy, pytest

@pytest.mark.mlms(manifest="manifests/digits.yaml", kind="agreement")
def test_agreement(mlms_predictor, mlms_recorder, mlms_device, mlms_reference, mlms_dataset):
    found = mlms_predictor.predict(mlms_dataset.batch([0, 1, 2]))["logits"]
    numpy.testing.assert_allclose(found, mlms_reference.outputs["logits"][:3], rtol=1e-4)
"""
    )
    pair.run("test_own.py").assert_outcomes(passed=1)


def test_without_a_dataset_both_get_the_same_random_inputs(pair: Pair) -> None:
    pair.add("same")
    text = pair.project.manifest.read_text()
    cut = text[: text.index("dataset:")] + text[text.index("evaluate:") :]
    pair.project.manifest.write_text(cut)
    pair.run().assert_outcomes(passed=1)
    assert pair.project.items()[0]["estimates"]["deviation"]["replicates"] == 16


@pytest.mark.slow
def test_further_limits_are_on_classes_and_probabilities(pair: Pair) -> None:
    pair.add("other", off="linear_9")
    pair.project.edit(
        "{reference: plain}",
        "{reference: plain, atol: 9, top1: {min: 90 %}, kl: {max: 1e-9}, js: {max: 1}}",
    )
    pair.run().assert_outcomes(passed=1)  # half a unit more of every logit changes no probability
    pair.project.edit("kl: {max: 1e-9}", "kl: {max: 0}")
    result = pair.run()
    decided = {limit["quantity"]: limit["verdict"] for limit in pair.project.items()[0]["limits"]}
    assert decided.pop("kl_max") == ("FAILED" if result.ret else "PASSED")
    assert set(decided.values()) == {"PASSED"}


def test_a_framework_that_does_not_show_its_layers_is_named(pair: Pair) -> None:
    pair.add("mute", off="conv2d_0")
    result = pair.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["  the first layer that departs is not known: mute does not show its layers"]
    )


def test_a_reference_that_is_not_there_is_a_skip_and_under_strict_a_failure(pair: Pair) -> None:
    pair.add("same")
    plain = pair.project.path / "more" / "plain.py"
    plain.write_text("import no_such_framework\n")
    result = pair.run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *plain can't be imported in stack here*"])
    pair.run("--mlms-strict").assert_outcomes(errors=1)


def test_outputs_of_another_shape_are_an_error_that_shows_both(pair: Pair) -> None:
    pair.add("narrow", rows=9)
    result = pair.run()
    assert result.ret == 1
    message = "output 'logits' is (9,) for each input, and (10,) by the reference, plain 1.0 on cpu"
    result.stdout.fnmatch_lines([f"*{message}*"])


def test_only_what_an_agreement_judges_becomes_an_item(pair: Pair) -> None:
    pair.add("one")
    pair.add("two")
    pair.project.edit("{reference: plain}", "{reference: plain, frameworks: [two]}")
    result = pair.run("--collect-only", "-q")
    assert [line for line in result.outlines if "::" in line] == [
        "manifests/digits.yaml::test_agreement[two-cpu]"
    ]


USUAL = Tolerance(1e-4, 1e-5)
RANDOM = np.random.default_rng(7)
CONV = RANDOM.standard_normal((2, 3, 4, 4))
RELU = np.maximum(CONV, 0)
POOL = RANDOM.standard_normal((2, 3, 2, 2))
DENSE = RANDOM.standard_normal((2, 5))
REFERENCE = [("conv", CONV), ("relu", RELU), ("pool", POOL), ("dense", DENSE)]


def test_the_first_layer_that_departs_is_found_by_name() -> None:
    ours = [("conv", CONV), ("relu", RELU), ("pool", POOL + 0.5), ("dense", DENSE * 2)]
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert found.layer == "pool"
    assert found.ours == "pool"
    assert found.after == ("relu", "relu")
    assert found.difference == pytest.approx(0.5)


def test_renamed_and_fused_layers_are_found_by_shape_and_order() -> None:
    channels_last_relu = np.moveaxis(RELU, 1, -1)
    channels_last_pool = np.moveaxis(POOL, 1, -1)
    ours = [("a", channels_last_relu), ("b", channels_last_pool), ("c", DENSE + 1)]
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert found.layer == "dense"
    assert found.ours == "c"
    assert found.after == ("pool", "b")


@pytest.mark.parametrize("ours", [REFERENCE, [("other", np.zeros(7))], []])
def test_layers_that_agree_or_can_not_be_matched_do_not_depart(ours: Any) -> None:
    assert find_departure(ours, REFERENCE, USUAL) is None


def test_rounding_is_no_departure() -> None:
    rounded = [(name, values * (1 + 1e-6)) for name, values in REFERENCE]
    assert find_departure(rounded, REFERENCE, USUAL) is None


@given(st.integers(0, 3))
def test_whichever_layer_goes_wrong_is_found(wrong: int) -> None:
    ours = []
    for number, (name, values) in enumerate(REFERENCE):
        error = 1 + 0.1 * number if number >= wrong else 0.0
        ours.append((name, values + error))
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert found.layer == REFERENCE[wrong][0]


LAYERS = [("conv", np.ones((1, 2, 4, 4))), ("dense", np.ones((1, 3)))]
REFUSED = Refused("no", "NotImplementedError")


class FakePredictor:
    """A predictor that returns these layers, or raises this error."""

    def __init__(self, layers: Any) -> None:
        self._layers = layers

    def inner(self, batch: Any) -> Any:
        if isinstance(self._layers, Exception):
            raise self._layers
        return self._layers


def case_of(framework: str) -> Any:
    return SimpleNamespace(stack=SimpleNamespace(label=framework), device="cpu")


def search(ours: Any, theirs: Any) -> DepartureSearch:
    """Search with predictors that return these layers; an Unavailable is raised on opening."""

    @contextlib.contextmanager
    def open_() -> Iterator[Any]:
        if isinstance(theirs, Unavailable):
            raise theirs
        yield FakePredictor(theirs)

    inputs = Inputs(None, {"x": np.zeros((1, 1), np.float32)}, 1)
    reference = Reference(case_of("onnxruntime"), inputs, {}, {}, Path("log"), open_)
    predictor: Any = FakePredictor(ours)
    return search_departure(case_of("mxnet"), lambda: predictor, reference, 0, USUAL)


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        (LAYERS, LAYERS, "of the layers that can be matched, none does"),
        ([("other", np.ones(7))], LAYERS, "of the layers that can be matched, none does"),
        (REFUSED, LAYERS, "mxnet does not show its layers"),
        (LAYERS, REFUSED, "onnxruntime does not show its layers"),
        (AgentError("the agent was killed"), LAYERS, "the agent was killed"),
        (LAYERS, Unavailable("no memory left on the device"), "no memory left on the device"),
    ],
)
def test_a_search_that_finds_nothing_has_a_reason(ours: Any, theirs: Any, reason: str) -> None:
    assert search(ours, theirs) == DepartureSearch(None, reason)


def test_the_departure_is_found_in_the_layers_of_both_agents() -> None:
    ours = [("a", LAYERS[0][1]), ("b", LAYERS[1][1] + 1)]
    departure = search(ours, LAYERS).departure
    assert departure is not None
    assert departure.layer == "dense"
    assert departure.ours == "b"
