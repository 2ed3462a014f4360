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
