"""Digests of cases: one part varied at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.config import Config
from pytest_mlms.core.records import Kind
from pytest_mlms.keep.results.case_digest import case_digest, definition_of
from pytest_mlms.provide.cases import Case, cases_of
from tests.support.cases import HERE
from tests.support.project import copy_digits

SERVER = "[single_stream, {server: {rate: 200 /s, latency: 15 ms}}]"
REPLAY = "[single_stream, {replay: {arrivals: trace.csv}}]"
SCENARIOS = "scenarios: [single_stream, offline]"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    manifest = copy_digits(tmp_path / "digits")
    (manifest.parent / "trace.csv").write_text("0\n1\n")
    return manifest


def case_of(path: Path, kind: Kind) -> Case:
    """Return the last case of a kind: of performance that with the last scenario."""
    return cases_of(load_manifest(path), kind, lambda framework: [HERE], lambda framework: HERE)[-1]


def edited(old: str, new: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return edit


def written(name: str, text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        (path.parent / name).write_text(text)

    return write


BOTH: list[Kind] = ["performance", "accuracy"]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (edited("color: L", "color: RGB"), BOTH),
        (edited("mean: 0, scale", "mean: 1, scale"), BOTH),
        (edited("element_type: float32", "element_type: float16"), BOTH),
        (edited("    layout: NCHW", "    layout: NCHW\n    shape: [batch, 1, 8, 8]"), BOTH),
        (edited("    layout: NCHW", "    layout: NCHW\n    range: [0, 9]"), BOTH),
        (edited("name: logits", "name: other"), BOTH),
        (edited("seed: 7", "seed: 8"), ["performance"]),
        (edited("[softmax, {top_k", "[{top_k"), ["accuracy"]),
        (edited("k: 5", "k: 4"), ["accuracy"]),
        (written("labels.txt", "zero\n" * 10), ["accuracy"]),
        (edited("latency_p90: {max: 5 ms}", "latency_p90: {max: 1 ms}"), []),
        (edited("top1: {min: 0.95}", "top1: {min: 0.99}"), []),
        (edited("license: CC-BY-4.0", "license: MIT"), []),
        (edited("method: bilinear, ", ""), []),
    ],
)
def test_a_definition_is_of_what_is_measured_and_not_of_what_judges_it(
    digits: Path, change: Callable[[Path], None], kinds: list[str]
) -> None:
    before = {kind: definition_of(case_of(digits, kind)) for kind in BOTH}
    change(digits)
    after = {kind: definition_of(case_of(digits, kind)) for kind in BOTH}
    assert [kind for kind in BOTH if before[kind] != after[kind]] == kinds


def test_the_arrivals_of_a_replay_are_of_its_definition_and_of_no_other(digits: Path) -> None:
    edited(SCENARIOS, f"scenarios: {REPLAY}")(digits)
    cases = cases_of(
        load_manifest(digits), "performance", lambda framework: [HERE], lambda framework: HERE
    )
    before = {case.scenario: definition_of(case) for case in cases}
    written("trace.csv", "0\n2\n")(digits)
    changed = {case.scenario for case in cases if definition_of(case) != before[case.scenario]}
    assert len(changed) == 1
    assert (changed.pop() or "").startswith("replay")


def test_the_limit_of_a_load_is_not_of_its_definition(digits: Path) -> None:
    edited(SCENARIOS, f"scenarios: {SERVER}")(digits)
    before = definition_of(case_of(digits, "performance"))
    edited("latency: 15 ms", "latency: 9 ms")(digits)
    assert definition_of(case_of(digits, "performance")) == before


def test_an_item_that_may_have_ended_by_its_timeout_is_another_one_with_a_longer(
    digits: Path, pytester: pytest.Pytester
) -> None:
    case = case_of(digits, "performance")
    config = Config.from_pytest(pytester.parseconfig())
    digest = case_digest(case, config)
    assert case_digest(case, replace(config, results=digits)) == digest
    assert case_digest(case, replace(config, timeout=2 * config.timeout)) != digest


def test_files_that_a_host_is_sent_are_of_the_definition_as_on_the_host_that_has_them(
    digits: Path,
) -> None:
    case = case_of(digits, "accuracy")
    here = definition_of(case)
    sent = digits.parent / "sent.txt"
    (digits.parent / "labels.txt").rename(sent)
    assert definition_of(case) != here
    assert definition_of(case, lambda loaded, artifact: replace(artifact, source=str(sent))) == here
