"""The command ``mlms judge``; tests/decide/upgrade/test_replay.py has the decisions themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.output_check import check_outputs
from tests.support.upgrade_results import RunFolder
from tests.support.upgrades import ROUND_RECORD, latencies


def judge(*arguments: str | Path) -> int:
    return main(["judge", *map(str, arguments)])


def test_the_verdicts_are_shown_and_a_regression_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunFolder(tmp_path).write()
    assert judge(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "new (B) against old (A), mxnet"
    assert lines[1].split() == ["was", "is", "model", "case", "B", "/", "A", "tolerance", "rounds"]
    cells = lines[2].split()
    assert cells[:4] == ["REGRESSED", "REGRESSED", "digits", "cpu-b8"]
    assert cells[4].startswith("×1.1")
    assert cells[-5:] == ["3", "%", "8", "of", "8"]
    assert lines[-2] == "0 of 1 would have been decided otherwise"
    without = "1 decided from the figures of their rounds: the raw pairs are not there"
    assert lines[-1] == without


def test_a_wider_tolerance_is_0_where_nothing_regresses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunFolder(tmp_path).write()
    assert judge(tmp_path, "--tolerance", "20 %") == 0
    output = capsys.readouterr().out
    assert "REGRESSED  PASSED" in output
    assert "1 of 1 would have been decided otherwise" in output


def test_with_the_raw_pairs_nothing_is_said_of_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunFolder(tmp_path).write_with_pairs()
    assert judge(tmp_path, "--clock", "cpu") == 1
    assert "figures" not in capsys.readouterr().out


def test_too_few_rounds_of_an_earlier_version_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = [replace(ROUND_RECORD, figures=figures) for figures in latencies(0.2, 0.2)]
    RunFolder(tmp_path).write(rounds=two)
    assert judge(tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "1 with too few rounds: passing takes 6 and failing 8, where earlier versions took fewer; "
        "measure again"
    )


def test_wrong_outputs_are_named_and_need_no_more_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = [replace(ROUND_RECORD, figures=figures) for figures in latencies(0.0)]
    agreement = check_outputs({"y": np.ones(2)}, {"y": np.zeros(2)})
    wer = Comparison("wer", 0.1, 0.9, "fraction", 0.01, False, 48, "inputs").but(
        verdict=Verdict.REGRESSED
    )
    RunFolder(tmp_path).write(rounds=one, comparisons=[agreement, wer], verdict="REGRESSED")
    assert judge(tmp_path) == 1
    output = capsys.readouterr().out
    assert "  agreement, wer\n" in output
    assert "too few rounds" not in output


def test_changed_verdicts_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path)
    folder.write()
    changed = folder.file.read_text()
    folder.write(verdict="INVALID", device="cuda:0", nodeid="m.yaml::test_upgrade[cuda]")
    folder.file.write_text(folder.file.read_text() + changed)
    assert judge(tmp_path, "--tolerance", "20 %") == 0
    words = [line.split()[:1] for line in capsys.readouterr().out.splitlines()]
    assert [word for word in words if word in (["REGRESSED"], ["INVALID"])] == [
        ["REGRESSED"],
        ["INVALID"],
    ]


def test_what_cannot_be_read_is_named_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.jsonl"
    assert judge(file) == 2
    file.write_text(json.dumps({"type": "item", "kind": "accuracy"}) + "\n")
    assert judge(tmp_path) == 2
    missing, without = capsys.readouterr().err.splitlines()
    assert missing.startswith(f"mlms: {file} can't be read: No such file or directory; name")
    assert without.startswith(f"mlms: {file} has no upgrade that was measured; it takes a run")


def test_a_tolerance_that_is_no_share_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        judge(tmp_path, "--tolerance", "much")
    assert "'much' is not a share; write it as in '3 %' or 0.03" in capsys.readouterr().err


def write_log(folder: Path, right: list[float], task: str = "arc") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"samples_{task}_2026-11-30T10-11-12.131415.jsonl"
    lines = (
        {
            "doc_id": doc,
            "filter": "none",
            "metrics": ["acc"],
            "acc": value,
            "resps": [["a"]],
            "arguments": {"gen_args_0": {"arg_0": "Q", "arg_1": "a"}},
            "doc_hash": f"d{doc}",
            "prompt_hash": f"p{doc}",
            "target_hash": "t",
        }
        for doc, value in enumerate(right)
    )
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_logs_of_lm_eval_are_judged_by_document_and_a_regression_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, lost in ((old, 0), (new, 30)):
        write_log(folder, [0.0] * lost + [1.0] * (500 - lost))
        write_log(folder, [1.0] * 40, "few")
    write_log(old, [1.0], "mmlu")
    assert judge("--lm-eval", old, new) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{new} (B) against {old} (A), paired by document"
    assert lines[2].split()[:4] == ["REGRESSED", "arc", "none", "acc"]
    assert "-6.00 (" in lines[2]
    assert lines[3] == "  worse for 30 documents (doc_id 0, 1, 2, 3, 4, …)"
    assert lines[4].split()[:2] == ["INCONCLUSIVE", "few"]
    assert lines[5] == "  more documents decide it"
    assert lines[-2:] == ["not judged, as only A has a log: mmlu", "1 REGRESSED, 1 INCONCLUSIVE"]
    assert judge("--lm-eval", old, new, "--tolerance", "20 %") == 0
    assert "PASSED" in capsys.readouterr().out


def test_logs_that_have_no_task_in_common_or_are_the_same_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write_log(tmp_path / "old", [1.0])
    write_log(tmp_path / "new", [1.0], "mmlu")
    cases: list[tuple[list[str | Path], str]] = [
        (["--lm-eval", old, old.parent / "." / old.name], "A and B are the same; name two runs"),
        (["--lm-eval", old, tmp_path / "new"], "A has logs of arc, and B of mmlu; name runs of"),
        (["--lm-eval", old, tmp_path / "nowhere"], "there is no log of samples; name a file"),
        (["--lm-eval", old, old, "--clock", "cpu"], "--clock is for RESULTS; leave it out"),
        ([], "name either RESULTS or --lm-eval A B"),
        ([tmp_path, "--lm-eval", old, old], "name either RESULTS or --lm-eval A B"),
    ]
    for arguments, message in cases:
        assert judge(*arguments) == 2
        assert message in capsys.readouterr().err
