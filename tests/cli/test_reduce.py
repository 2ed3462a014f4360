"""Tests of ``mlms reduce``: what it refuses, and what it asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.repro.archive import write_bundle
from tests.support.reductions import bundle_of, deep_network

USAGE = 2


def written_bundle(folder: Path) -> Path:
    path = folder / "deep.zip"
    write_bundle(bundle_of(deep_network(folder)), path)
    return path


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["gone.zip"], "there is no gone.zip; make one with mlms repro"),
        (["x.zip", "--budget=0"], "'0' is no number of seconds above 0"),
        (["x.zip", "--budget=nan"], "'nan' is no number of seconds above 0"),
    ],
)
def test_wrong_words_are_refused_with_advice(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["reduce", *words])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == USAGE
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["", "no\n", "n\n"])
def test_a_bundle_is_not_installed_unless_a_person_agrees(
    tmp_path: Path,
    answer: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "answer").write_text(answer)
    with (tmp_path / "answer").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(["reduce", str(written_bundle(tmp_path))]) == USAGE
    said = capsys.readouterr().err
    assert "old is Python 3.11.7" in said
    assert "nothing was installed" in said


def test_the_code_in_a_bundle_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written_bundle(tmp_path)  # with a predictor that is no one's here
    assert main(["reduce", str(path), "--yes"]) == USAGE
    assert "no predictor for operators is installed here" in capsys.readouterr().err


def test_a_file_that_is_no_bundle_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.zip"
    path.write_bytes(b"PK")
    assert main(["reduce", str(path), "--yes"]) == USAGE
    assert "is no bundle that can be read" in capsys.readouterr().err
