"""mlms repro refuses what it can't make, and overwrites nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro.archive import read_bundle, write_bundle
from pytest_mlms.measure.agent.registry import find_predictors
from tests.support.bundles import bundle_of_matrix, side
from tests.support.result_lines import line_of


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with a run of one item that passed."""
    folder = tmp_path / "mlms-results" / "latest"
    folder.mkdir(parents=True)
    line = {**line_of(1), "type": "item", "format": 1}
    (folder / "results.jsonl").write_text(json.dumps(line) + "\n")
    return folder.parent


def test_an_item_that_passed_has_nothing_to_reproduce(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repro", "b1", f"--mlms-results={results}"]) == 2
    assert "is PASSED: there is no failure to reproduce" in capsys.readouterr().err


def test_a_file_that_is_there_is_not_overwritten(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = results / "mine.zip"
    out.write_text("mine")
    assert main(["repro", "b1", f"--mlms-results={results}", f"--out={out}"]) == 2
    assert "overwrite it with --force" in capsys.readouterr().err
    assert out.read_text() == "mine"


def test_a_folder_that_is_not_there_is_told_before_the_bundle_is_made(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repro", "b1", f"--mlms-results={results}", "--out=no/r.zip"]) == 2
    assert "--out: there is no folder no; make it, or name" in capsys.readouterr().err


def test_without_an_item_it_says_what_to_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repro"]) == 2
    assert "name an item" in capsys.readouterr().err


def test_a_stranger_s_predictor_is_not_run_by_our_own_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bundle(bundle_of_matrix(tmp_path), tmp_path / "r.zip")
    assert main(["repro", "--replay", str(tmp_path / "r.zip"), "--yes"]) == 2
    assert "no predictor for skewed is installed here; name the folder" in capsys.readouterr().err


def test_a_stranger_s_variable_that_may_load_code_is_not_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor = find_predictors()["onnxruntime"]
    for name, refused in (("LD_PRELOAD", True), ("OMP_WAIT_POLICY", False)):
        new = side("2.0")._replace(variables=((name, "PASSIVE"),))
        path = tmp_path / f"{name}.zip"
        write_bundle(bundle_of_matrix(tmp_path, new=new, predictor=predictor), path)
        assert main(["repro", "--replay", str(path)]) == 2
        printed = capsys.readouterr()
        assert (f"its variable {name} may load code" in printed.err) == refused
        assert (f"with {name}=PASSIVE" in printed.out) != refused
        if refused:
            with pytest.raises(MlmsError, match="its variable LD_PRELOAD may load code"):
                read_bundle(path, tmp_path / "unpacked")
