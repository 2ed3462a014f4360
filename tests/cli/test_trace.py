"""The commands ``mlms analyze`` and ``mlms export``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from tests.support.traced_models import counted_model, save_run, traced_model


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The folder of a run with a trace of batch size 2, and then one of batch size 1."""
    return str(save_run(tmp_path / "run", traced_model(2, 120), traced_model(1, 100)))


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_an_analysis_is_printed_in_each_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    run = str(save_run(tmp_path, counted_model("layer+hardware")))
    assert main(["analyze", run, "--kind", "counters-by-layer", "--format", form]) == 0
    text = capsys.readouterr().out
    assert "page-faults" in text
    assert "conv1" in text
    assert ("75.00 %" if form == "table" else "0.75") in text


def test_an_analysis_is_of_all_traces_or_of_the_chosen(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", run, "--kind", "A1", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["batch_size"] for row in rows] == [1, 2]
    assert main(["analyze", run, "--kind", "A1", "--format", "json", "-k", "b2"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["batch_size"] == 2


def test_an_unknown_analysis_is_an_error(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", run, "--kind", "A16"]) == 2
    assert "there is no analysis 'A16'; write one of model (A1)" in capsys.readouterr().err


def test_an_empty_table_comes_with_the_reasons(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", run, "--kind", "steps"]) == 0
    printed = capsys.readouterr()
    assert "the traces have nothing of this" in printed.out
    assert printed.err.startswith("levels traced: ")


def test_an_analysis_of_kernels_says_which_level_is_missing_and_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(save_run(tmp_path, counted_model("layer")))
    assert main(["analyze", run, "--kind", "A10"]) == 0
    message, *_ = capsys.readouterr().err.splitlines()
    assert message == (
        "kernels-by-name (A10) needs level kernel, and 1 of 1 traces were made without it; "
        "run pytest with --mlms-trace=kernel"
    )


def test_only_the_largest_rows_are_printed(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", run, "--kind", "A2", "--top", "1", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["conv1", "conv1"]


@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_a_number_of_rows_below_one_is_an_error(
    run: str, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    with pytest.raises(SystemExit) as exit_status:
        main(["analyze", run, "--kind", "A2", f"--top={number}"])
    assert exit_status.value.code == 2
    assert "is not a whole number, 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "suffix"), [("otlp", ".otlp.json"), ("perfetto", ".pftrace")])
def test_each_trace_is_exported_to_a_file(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, suffix: str
) -> None:
    if form == "otlp":
        pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    folder = tmp_path / "out"
    assert main(["export", run, str(folder), "--format", form]) == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"0{suffix}", f"1{suffix}"]
    assert capsys.readouterr().out.count(" spans\n") == 2


def test_the_default_format_of_an_export_is_otlp(run: str, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    assert main(["export", run, str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "0.otlp.json").is_file()


def test_an_export_to_a_file_instead_of_a_folder_is_an_error(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "file"
    target.write_text("")
    assert main(["export", run, str(target)]) == 2
    assert "file can't be a folder: File exists; name another" in capsys.readouterr().err


def test_an_export_that_cannot_be_written_is_an_error_and_leaves_no_part(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    (folder / "0.pftrace").mkdir(parents=True)
    assert main(["export", run, str(folder), "--format", "perfetto"]) == 2
    assert "0.pftrace can't be written: it is a folder" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["0.pftrace"]
