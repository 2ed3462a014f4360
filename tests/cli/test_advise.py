"""``mlms advise`` on digits: its answer can be pasted; mistakes are told with what to write."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.cli.advise import _option, _record
from pytest_mlms.cli.main import main
from pytest_mlms.decide.advice.fragment import Fragment
from pytest_mlms.decide.advice.run import RISK
from pytest_mlms.evaluation import evaluate
from pytest_mlms.manifest import yaml12
from tests.support.cases import digits_case
from tests.support.project import copy_digits

Run = Callable[..., tuple[int, str, str]]
QUICK = ("--duration", "0.05", "--budget", "40s", "--tolerance", "50 %")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs ``mlms advise`` in a folder with the manifest of digits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLMS_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("MLMS_CACHE", str(tmp_path / "cache"))
    copy_digits(tmp_path / "m")

    def advise(*words: str) -> tuple[int, str, str]:
        try:
            status = main(["advise", "m/digits.yaml", *words])
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return advise


def test_what_is_pasted_runs_and_judges_what_was_promised(run: Run) -> None:
    manifest = yaml.safe_load(Path("m/digits.yaml").read_text())
    manifest["thresholds"] = {"latency_p90": {"max": "10 s", "batch_sizes": [2]}}
    manifest["evaluate"] = {"batch_sizes": [2, 8]}
    Path("m/digits.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    limits = "latency_p50 <= 10 s, top1 >= 75 %, peak_memory <= 2 GiB, latency_p99 <= 9999 ms"
    words = ["--objective", "max throughput", "--subject-to", limits, "--batch-sizes", "1,64"]
    words += ["--threads", "1", *QUICK]
    status, output, errors = run(*words)
    assert status == 0, output + errors
    section = yaml.safe_load(output[output.index("# in m/digits.yaml") :])
    assert "left out, as it judges another batch size: latency_p90" in output
    Path("m/digits.yaml").write_text(yaml.safe_dump({**manifest, **section}, sort_keys=False))
    timed, scored = evaluate("m/digits.yaml", "-k", "test_performance or test_accuracy")
    if timed["kind"] == "accuracy":
        timed, scored = scored, timed
    (size,) = section["evaluate"]["batch_sizes"]
    assert f"onnxruntime b{size} t1 is" in output
    assert timed["batch_size"] == size
    judged = {limit["quantity"]: limit.get("max") for limit in timed["limits"]}
    assert judged == {"latency_p50": 10, "peak_memory": 2 << 30, "latency_p99": 9.999}
    assert [limit["min"] for limit in scored["limits"]] == [0.75]
    (record,) = Path("mlms-results").glob("advice-*.jsonl")
    again = run(*words, "--replay", str(record))
    doubts = [line for line in output.splitlines() if line.startswith("of what it was judged by")]
    assert again[0] == 2  # the manifest has other limits by now
    Path("m/digits.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    status, repeated, _ = run(*words, "--replay", str(record))
    assert status == 0
    assert repeated.splitlines() == [line for line in output.splitlines() if line not in doubts]


def test_limits_on_answers_are_judged_before_anything_is_timed(run: Run) -> None:
    words = ("--objective", "max throughput", "--subject-to", "top1 >= 99.99 %")
    status, output, _ = run(*words, *QUICK)
    assert status == 1
    assert "nothing fits" in output


def test_candidates_that_cannot_be_opened_are_told(run: Run) -> None:
    Path("m/digits_cnn.onnx").write_bytes(b"no model")
    status, output, _ = run("--objective", "max throughput", *QUICK)
    assert status == 1
    assert "all candidates failed" in output


@pytest.mark.parametrize(
    ("objective", "limits", "told"),
    [
        ("max speed", "", "there is no quantity 'speed'"),
        ("throughput", "", "write max or min and a name"),
        ("min throughput", "", "write max"),
        ("max top1", "", "the same in each process"),
        ("max peak_rate", "", "the same in each process"),
        ("max throughput", "latency_p99 <= 15", "write one of ns"),
        ("max throughput", "latency_p99 <= 2 GiB", "the unit 'GiB'"),
        ("max throughput", "latency_p99 >= 15 ms", "asks for the worse"),
        ("max throughput", "latency_p99 <= 1 ms, latency_p99 <= 2 ms", "two limits"),
        ("max throughput", "latency_p99", "is no limit"),
        ("max throughput", "top1 >= 120 %", "out of range"),
        ("max throughput", "mae <= nan", "out of range"),
    ],
)
def test_a_mistake_says_what_to_write(run: Run, objective: str, limits: str, told: str) -> None:
    words = ("--subject-to", limits) if limits else ()
    status, _, errors = run("--objective", objective, *words)
    assert status == 2
    assert told in errors


@pytest.mark.parametrize("word", ["--budget=0s", "--budget=10", "--threads=0", "--option=a"])
def test_a_choice_that_is_none_is_refused(run: Run, word: str) -> None:
    assert run("--objective", "max throughput", word)[0] == 2


def test_an_option_that_no_predictor_takes_is_refused(run: Run) -> None:
    status, _, errors = run("--objective", "max throughput", "--option", "sped=1,2")
    assert status == 2
    assert "--option sped" in errors


@pytest.mark.parametrize("value", ["NaN", "-Infinity"])
def test_a_value_that_is_no_number_is_a_text(value: str) -> None:
    """It was no value of any candidate, as NaN equals nothing: a traceback."""
    assert _option(f"config.key={value},1") == ("config.key", [value, 1])


@pytest.mark.parametrize("size", [20, 25])
def test_a_record_that_the_disk_refuses_ends_and_the_search_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    """It was a traceback, with no answer. No line follows half of one."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with _record(tmp_path) as keep:
        keep(kind="question")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            keep(kind="process")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        keep(kind="process")
    (record,) = tmp_path.iterdir()
    assert record.read_text().startswith('{"kind": "question"}\n')
    assert len(record.read_text()) <= 25
    assert capsys.readouterr().err.count("the record ends here") == 1


def test_scenarios_that_are_not_timed_are_named(run: Run) -> None:
    server = {"server": {"rate": "10 /s", "latency": "9 s"}}
    change(evaluate={"scenarios": ["single_stream", server], "instances": 2})
    words = [*REPLAY, record()]
    told = run(*words)[2]
    assert "server-10-9000ms isn't timed here" in told
    assert "m/digits.yaml:" in told


def test_a_batch_size_that_the_manifest_cannot_have_is_refused(run: Run) -> None:
    manifest = yaml.safe_load(Path("m/digits.yaml").read_text())
    change(outputs=[{**each, "batch": "none"} for each in manifest["outputs"]])
    status, _, errors = run("--objective", "max throughput", "--batch-sizes", "8", *QUICK)
    assert status == 2
    assert "write batch_sizes: [1]" in errors


def test_limits_are_pasted_for_the_variant_that_was_measured(run: Run) -> None:
    (model,) = yaml.safe_load(Path("m/digits.yaml").read_text())["models"]
    labels = ["digits-cnn onnxruntime one b1", "digits-cnn onnxruntime two b1"]
    path = record(labels=labels, values={"throughput": 100.0, "peak_memory": 1e6})
    change(models=[{**model, "variant": variant} for variant in ("one", "two")], thresholds={})
    words = ["--objective", "max throughput", "--subject-to", "peak_memory <= 2 GiB"]
    status, output, errors = run(*words, "--batch-sizes", "1", "--replay", path)
    assert status == 0, output + errors
    section = yaml.safe_load(output[output.index("# in m/digits.yaml") :])
    assert section["thresholds"]["peak_memory"][0]["frameworks"] == ["onnxruntime-one"]


@given(text=st.text("0123456789eEox.+-_:", max_size=6))
def test_a_text_of_the_manifest_is_a_text_in_what_is_pasted(text: str) -> None:
    case = digits_case()
    same = [text]
    pasted = Fragment({"evaluate": same, "thresholds": same}, []).text(case)
    assert yaml12.parse(pasted).value == {"evaluate": same, "thresholds": same}


def change(**keys: object) -> None:
    """Replace keys of the manifest."""
    manifest = yaml.safe_load(Path("m/digits.yaml").read_text())
    Path("m/digits.yaml").write_text(yaml.safe_dump({**manifest, **keys}, sort_keys=False))


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"evaluate": {"devices": ["cpu", "cuda:0"]}}, "leave cuda:0 out of 'devices'"),
        ({"evaluate": {"shapes": "dataset"}}, "leave 'shapes' out"),
        (
            {"evaluate": {"scenarios": [{"server": {"rate": "10 /s", "latency": "9 s"}}]}},
            "add single_stream",
        ),
    ],
)
def test_what_is_not_advised_on_is_refused_with_its_line(
    run: Run, keys: dict[str, object], told: str
) -> None:
    change(**keys)
    status, _, errors = run("--objective", "max throughput")
    assert status == 2
    assert told in errors
    assert "m/digits.yaml:" in errors


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("wer <= 5 %", "task image-classification has no such quantity"),
        ("device_memory <= 2 GiB", "the CPU has no such quantity"),
        ("batch_agreement <= 2", "can't be a limit here"),
    ],
)
def test_a_limit_that_nothing_measures_is_an_error(run: Run, limit: str, told: str) -> None:
    status, _, errors = run("--objective", "max throughput", "--subject-to", limit)
    assert status == 2
    assert told in errors


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"hardware": {"memory": ">=900000 GiB"}}, "GiB"),
        ({"marks": {"skip": {"onnxruntime": "it crashes"}}}, "it is marked skip: it crashes"),
    ],
)
def test_a_candidate_that_its_manifest_keeps_from_this_machine_is_none(
    run: Run, keys: dict[str, object], told: str
) -> None:
    change(**keys)
    status, output, _ = run("--objective", "max throughput", *QUICK)
    assert status == 1
    assert told in output
    assert "all candidates failed" in output


def test_the_limits_of_the_manifest_hold_too(run: Run) -> None:
    change(thresholds={"latency_p50": {"max": "1 ns"}, "agreement": {"reference": "onnxruntime"}})
    status, output, errors = run("--objective", "max throughput", *QUICK)
    assert status == 1
    assert "nothing fits" in output
    assert "the manifest's limit on latency_p50 holds, too" in errors
    assert "deviation isn't judged here" in errors


def test_models_that_have_one_name_or_different_scenarios_are_not_compared(run: Run) -> None:
    manifest = yaml.safe_load(Path("m/digits.yaml").read_text())
    for keys, told in (
        ({}, "two candidates are called digits-cnn onnxruntime b1"),
        ({"evaluate": {"scenarios": ["offline"]}, "name": "other"}, "calls of different scenarios"),
    ):
        Path("m/other.yaml").write_text(yaml.safe_dump({**manifest, **keys}, sort_keys=False))
        status, _, errors = run("m/other.yaml", "--objective", "max throughput")
        assert status == 2
        assert told in errors


def test_a_history_sets_aside_what_was_hopeless_and_says_so(run: Run) -> None:
    change(evaluate={"batch_sizes": [8]}, thresholds={"latency_p50": {"max": "1 s"}})
    evaluate("m/digits.yaml", "-k", "test_performance", "--mlms-history=h.sqlite")
    words = ["--objective", "max throughput", "--subject-to", "latency_p50 <= 1 ns", *QUICK]
    words += ["--batch-sizes", "4,8", "--history", "h.sqlite"]
    status, output, errors = run(*words)
    assert status == 1
    assert "the history knows 1 of 2 candidates" in errors
    assert "onnxruntime b8: far over its limit on latency_p50 in 1 run until" in output
    assert "--no-history" in output
    (record,) = Path("mlms-results").glob("advice-*.jsonl")
    assert run(*words, "--replay", str(record))[:2] == (status, output)
    assert "nothing fits" in run(*words, "--no-history")[1]
    told = run(*words[:-1], "nowhere.sqlite")[2]
    assert "nothing is known beforehand" in told


LABELS = ["digits-cnn onnxruntime b1", "digits-cnn onnxruntime b8"]


RATE = {"throughput": 100.0}


def record(
    *lines: dict[str, object], labels: Sequence[str] = LABELS, values: dict[str, float] = RATE
) -> str:
    """Write a manifest without limits and the record of two candidates; return its path."""
    change(thresholds={})
    asked = {"kind": "question", "objective": "throughput", "candidates": labels}
    process: dict[str, Any] = {"kind": "process", "values": values, "seconds": 1.0, "slack": {}}
    processes = [{**process, "candidate": label} for label in [*labels] * 6]
    texts = [json.dumps(line) for line in (asked, *lines, *processes)]
    Path("record.jsonl").write_text("\n".join(texts))
    return "record.jsonl"


REPLAY = ("--objective", "max throughput", "--batch-sizes", "1,8", "--replay")


def test_a_candidate_whose_answers_are_undecided_is_told_to_be_perhaps_better(run: Run) -> None:
    lines = []
    for label, low in zip(LABELS, (0.9, 0.7), strict=True):
        estimate = {"value": 0.95, "low": low, "high": 1.0, "confidence": 0.95}
        estimates = {"top1": {**estimate, "replicates": 100, "of": "inputs"}}
        line: dict[str, Any] = {"kind": "answers", "candidate": label, "risk": RISK / 4}
        lines.append({**line, "seconds": 1.0, "estimates": estimates, "wide": estimates})
    _, output, _ = run(*REPLAY, record(*lines), "--subject-to", "top1 >= 75 %")
    assert f"{LABELS[0]} is shown to fit, but not to be the best" in output
    assert f"may fit and be better: {LABELS[1]}" in output


def test_limits_and_options_that_are_given_again_are_added(run: Run) -> None:
    words = [*REPLAY, record(), "--subject-to", "top1 >= 75 %", "--subject-to", "wer <= 1 %"]
    assert "wer: task image-classification" in run(*words)[2]
    words = [*REPLAY, record(), "--option", "intra=1", "--option", "intra=2"]
    assert "--option intra=1" in run(*words)[2]


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "process", "candidate": LABELS[0]},
        {"kind": "process", "candidate": [], "error": "it died"},
        {"kind": "process", "candidate": LABELS[0], "error": ""},
        {"kind": "process", "candidate": LABELS[0], "values": {"throughput": math.nan}},
        {"kind": "process", "candidate": LABELS[0], "values": {"throughput": "fast"}},
        {"kind": "answers", "candidate": LABELS[0], "risk": 0.1, "estimates": {"top1": 1}},
        {"kind": "calls", "candidate": LABELS[0], "interval": [1]},
        {"kind": "question", "objective": "throughput"},
        {"kind": "question", "objective": "throughput", "candidates": LABELS, "set_aside": []},
        {"kind": "other", "candidate": LABELS[0]},
    ],
)
def test_a_damaged_record_is_refused_with_its_line(run: Run, line: dict[str, object]) -> None:
    filled = {"seconds": 1.0, "slack": {}, **line} if "values" in line else line
    status, _, errors = run(*REPLAY, record(filled))
    assert status == 2
    assert "record.jsonl:2: this is no line of an advice, or a damaged one" in errors


def test_a_record_does_not_answer_what_was_not_measured(run: Run) -> None:
    assert run(*REPLAY, record())[0] == 0
    for limit in ("peak_memory <= 2 GiB", "top1 >= 75 %"):
        status, _, errors = run(*REPLAY, record(), "--subject-to", limit)
        assert status == 2
        assert "another question" in errors


def test_a_record_of_another_question_is_refused(run: Run) -> None:
    Path("other.jsonl").write_text('{"kind": "question", "objective": "x", "candidates": []}\n')
    Path("none.jsonl").write_text("no JSON\n")
    for name, told in (("other", "another question"), ("none", "none.jsonl:1"), ("no", "be read")):
        status, _, errors = run("--objective", "max throughput", "--replay", f"{name}.jsonl")
        assert status == 2
        assert told in errors
