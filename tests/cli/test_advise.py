"""``mlms advise`` on digits: its answer can be pasted; mistakes are told with what to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pytest_mlms.cli.main import main
from pytest_mlms.evaluation import evaluate
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


def test_the_answer_is_a_section_that_can_be_pasted_and_run(run: Run) -> None:
    limits = "latency_p50 <= 10 s, top1 >= 75 %, peak_memory <= 2 GiB"
    words = ("--objective", "max throughput", "--subject-to", limits, "--batch-sizes", "1,64")
    status, output, errors = run(*words, "--threads", "1", *QUICK)
    assert status == 0, output + errors
    assert "onnxruntime b64 t1 is the best" in output
    section = yaml.safe_load(output[output.index("# in m/digits.yaml") :])
    manifest = yaml.safe_load(Path("m/digits.yaml").read_text())
    Path("m/digits.yaml").write_text(yaml.safe_dump({**manifest, **section}, sort_keys=False))
    (item,) = evaluate("m/digits.yaml", "-k", "test_performance and offline")
    assert item["batch_size"] == 64
    (record,) = Path("mlms-results").glob("advice-*.jsonl")
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert {"answers", "values"} <= {key for line in lines for key in line}


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
        ("max throughput", "latency_p99 >= 15 ms", "would ask for the worse"),
        ("max throughput", "latency_p99 <= 1 ms, latency_p99 <= 2 ms", "two limits"),
        ("max throughput", "latency_p99", "is no limit"),
        ("max throughput", "top1 >= 120 %", "out of range"),
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
