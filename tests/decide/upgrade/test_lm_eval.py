"""lm-eval's logs of samples: how they are read, paired and judged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.lm_eval import find_logs, judge_logs, read_log

DATE = "2026-11-30T10-11-12.131415"
Line = dict[str, Any]


def line(doc: int, metrics: Mapping[str, Any], name: str = "none") -> Line:
    """Return a line as lm_eval 0.4.9 writes it."""
    prompt = f"Question {doc}\nAnswer:"
    return {
        "doc_id": doc,
        "doc": {"question": f"Question {doc}"},
        "target": "yes",
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": ["\n"]}}},
        "resps": [["yes"]],
        "filtered_resps": ["yes"],
        "filter": name,
        "metrics": list(metrics),
        "doc_hash": f"d{doc}",
        "prompt_hash": f"p{doc}",
        "target_hash": "t",
        **metrics,
    }


def write(folder: Path, lines: Sequence[Line], task: str = "qa_1", date: str = DATE) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"samples_{task}_{date}.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def lines_of(values: Sequence[Any], metric: str = "acc") -> list[Line]:
    return [line(doc, {metric: value}) for doc, value in enumerate(values)]


def judged(
    folder: Path, a: Sequence[Line], b: Sequence[Line], tolerance: float | None = None
) -> list[Comparison]:
    old, new = (read_log(write(folder / side, lines)) for side, lines in (("a", a), ("b", b)))
    return [found.compared for found in judge_logs("qa_1", old, new, tolerance)]


RIGHT = [1.0] * 400 + [0.0] * 100


def test_equal_logs_pass_and_few_documents_decide_nothing(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, lines_of(RIGHT), lines_of(RIGHT))
    assert (found.verdict, found.a, found.ratio, found.replicates) == (Verdict.PASSED, 0.8, 0, 500)
    (found,) = judged(tmp_path, lines_of(RIGHT[:50]), lines_of(RIGHT[:50]))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.about == "more documents decide it"


def test_lost_documents_regress_and_are_named(tmp_path: Path) -> None:
    b = [0.0] * 30 + RIGHT[30:]
    (found,) = judged(tmp_path, lines_of(RIGHT), lines_of(b))
    assert found.verdict is Verdict.REGRESSED
    assert found.about == "worse for 30 documents (doc_id 0, 1, 2, 3, 4, …)"
    (found,) = judged(tmp_path, lines_of(RIGHT), lines_of(b), tolerance=0.2)
    assert found.verdict is Verdict.PASSED


def test_documents_are_paired_whatever_their_order(tmp_path: Path) -> None:
    b = lines_of([0.0] * 30 + RIGHT[30:])
    (found,) = judged(tmp_path, lines_of(RIGHT), b[::-1])
    assert found.about.startswith("worse for 30 documents (doc_id 0, 1, 2")


@pytest.mark.parametrize("metric", ["f1", "brier_score"])
@pytest.mark.parametrize(("change", "verdict"), [(0.0, Verdict.PASSED), (0.05, Verdict.REGRESSED)])
def test_means_of_numbers_are_compared_in_their_direction(
    tmp_path: Path, metric: str, change: float, verdict: Verdict
) -> None:
    values = np.random.default_rng(1).uniform(0.1, 0.9, 500)
    worse = -change if metric == "f1" else change
    a, b = (lines_of(each.tolist(), metric) for each in (values, values + worse))
    (found,) = judged(tmp_path, a, b)
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(worse)
    assert found.low - 1e-9 <= found.ratio <= found.high + 1e-9
    (found,) = judged(tmp_path, b, a)
    assert found.verdict is Verdict.PASSED


def test_the_results_of_the_run_say_which_direction_is_better(tmp_path: Path) -> None:
    a, b = lines_of(RIGHT, "toxicity"), lines_of([0.0] * 30 + RIGHT[30:], "toxicity")
    (found,) = judged(tmp_path, a, b)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "nothing says whether higher is better; keep results_DATE.json" in found.lacking
    results = tmp_path / "a" / f"results_{DATE}.json"
    for higher, verdict in ((True, Verdict.REGRESSED), (False, Verdict.PASSED)):
        results.write_text(json.dumps({"higher_is_better": {"qa_1": {"toxicity": higher}}}))
        (found,) = judged(tmp_path, a, b)
        assert found.verdict is verdict
        assert (found.a, found.b) == (0.8, 0.74)
        assert found.ratio == pytest.approx(-0.06)


def test_each_filter_and_metric_has_a_verdict(tmp_path: Path) -> None:
    def both(strict: Sequence[float]) -> list[Line]:
        of_strict = [line(doc, {"exact_match": each}, "strict") for doc, each in enumerate(strict)]
        flexible = [line(doc, {"exact_match": 1.0, "f1": 1.0}, "flexible") for doc in range(500)]
        return [*of_strict, *flexible]

    found = judged(tmp_path, both(RIGHT), both([0.0] * 30 + RIGHT[30:]))
    assert [(each.quantity, each.verdict) for each in found] == [
        ("exact_match", Verdict.REGRESSED),
        ("exact_match", Verdict.PASSED),
        ("f1", Verdict.PASSED),
    ]


def changed(change: Callable[[Line], Any]) -> list[Line]:
    lines = lines_of(RIGHT)
    for each in lines[7:9]:
        change(each)
    return lines


@pytest.mark.parametrize(
    ("b", "lacking"),
    [
        (lines_of(RIGHT)[:-2], "only A has 2 documents (doc_id 498, 499)"),
        (lines_of([*RIGHT, 1.0]), "only B has 1 documents (doc_id 500)"),
        (changed(lambda each: each.update(prompt_hash="x")), "the prompts differ for 2 documents"),
        (changed(lambda each: each.update(doc_hash="x")), "the documents differ for 2 documents"),
        (changed(lambda each: each.update(target_hash="x")), "the labels differ for 2 documents"),
        (changed(lambda each: each.pop("prompt_hash")), "a log has no 'prompt_hash'"),
        (changed(lambda each: each.update(resps=[["a", "b"]])), "A has 1 answers to a request"),
        (
            changed(lambda each: each["arguments"]["gen_args_0"].update(arg_1={"do_sample": 1})),
            "the settings of the generation differ for 2 documents (doc_id 7, 8)",
        ),
        (changed(lambda each: each.update(acc=math.nan)), "B has NaN or infinity, for 2 documents"),
        (changed(lambda each: each.update(acc="nan")), "B has NaN or infinity, for 2 documents"),
        (changed(lambda each: each.update(acc=["yes", "no"])), "B has no number, which may only"),
        (changed(lambda each: each.pop("acc")), "B has no number, which may only count"),
        (changed(lambda each: each.update(acc=40.0)), "it isn't within 0 and 1"),
        (changed(lambda each: each.update(filter="other")), "only A has 2 documents (doc_id 7, 8)"),
    ],
)
def test_what_is_no_pair_or_no_number_decides_nothing(
    tmp_path: Path, b: list[Line], lacking: str
) -> None:
    found = judged(tmp_path, lines_of(RIGHT), b)
    assert {each.verdict for each in found} == {Verdict.INCONCLUSIVE}
    assert found[0].lacking.startswith(lacking)


def test_numbers_of_numpy_are_texts_in_logs(tmp_path: Path) -> None:
    texts = ["True" if each else "False" for each in RIGHT]
    (found,) = judged(tmp_path, lines_of(texts), lines_of(["0.0"] * 30 + texts[30:]))
    assert (found.a, found.b, found.verdict) == (0.8, 0.74, Verdict.REGRESSED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no sample in it"),
        ("[1]\n", ":1: it is no JSON object, or cut off"),
        (f"{json.dumps(line(0, {'acc': 1.0}))}\n{{", ":2: it is no JSON object, or cut off"),
        ("{}\n", ":1: there is no number in 'doc_id'"),
        ('{"doc_id": 1}\n', ":1: there is no list of 'metrics'; log samples by a newer lm_eval"),
        (f"{json.dumps(line(0, {'acc': 1.0}))}\n" * 2, ":2: document 0 has filter 'none' in line"),
    ],
)
def test_a_log_that_is_none_of_lm_eval_is_an_error_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = write(tmp_path, [])
    path.write_text(text)
    with pytest.raises(MlmsError) as raised:
        read_log(path)
    assert str(raised.value).startswith(f"{path}: " if not text else f"{path}{message}")
    assert message in str(raised.value)


def test_the_newest_log_of_a_task_is_first_and_other_files_are_none(tmp_path: Path) -> None:
    new = write(tmp_path / "model", lines_of(RIGHT))
    old = write(tmp_path / "model", lines_of(RIGHT), date="2025-01-01T00-00-00.5")
    other = write(tmp_path / "model", lines_of(RIGHT), task="arc_easy")
    (tmp_path / "model" / "samples_x.jsonl").write_text("")
    assert find_logs(tmp_path) == {"qa_1": [new, old], "arc_easy": [other]}
    assert find_logs(old) == {"qa_1": [old]}
    with pytest.raises(MlmsError, match="there is no log of samples; name a file samples_TASK"):
        find_logs(tmp_path / "model" / "samples_x.jsonl")
    write(tmp_path / "other_model", lines_of(RIGHT))
    with pytest.raises(MlmsError, match="there are logs in 2 folders; name "):
        find_logs(tmp_path)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*line(0, {"acc": 1.0}), "other"]), PLAIN))
def test_any_json_is_an_error_or_judged_and_never_passes(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    a, b = lines_of(RIGHT), lines_of(RIGHT)
    b[3] = {**b[3], **changes}
    try:
        found = judged(folder, a, b)
    except MlmsError as error:
        assert f"{DATE}.jsonl:" in str(error)
        return
    hashes = {"doc_hash", "prompt_hash", "target_hash"}
    others = {name for name in changes if a[3].get(name) != changes[name]}
    if others & hashes:
        assert {each.verdict for each in found} == {Verdict.INCONCLUSIVE}
    if changes.get("acc", 1.0) not in (1.0, "True"):
        assert all(each.b < 0.8 for each in found if each.verdict is Verdict.PASSED)
