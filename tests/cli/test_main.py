from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.manifest import yaml12
from tests.support.project import DIGITS, copy_digits


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return copy_digits(tmp_path / "manifests")


def test_lint_of_a_sound_folder_is_quiet_and_0(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", "manifests"]) == 0
    assert capsys.readouterr() == ("", "1 manifest, 0 with errors\n")


def test_lint_prints_each_fault_with_its_line_and_is_1(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest.write_text(manifest.read_text().replace("5 ms", "5").replace("float32", "fp32"))
    assert main(["lint", "manifests/digits.yaml"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "manifests/digits.yaml:16",
        "manifests/digits.yaml:44",
    ]


def test_lint_checks_the_local_files_too(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (manifest.parent / "labels.txt").unlink()
    (manifest.parent / "digits_cnn.onnx").write_bytes(b"changed")
    assert main(["lint", "manifests"]) == 1
    printed = capsys.readouterr().out
    assert "labels.txt does not exist" in printed
    assert "digits_cnn.onnx has sha256" in printed


def test_lint_of_what_is_not_there_is_2(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert main(["lint", "nowhere"]) == 2
    assert main(["lint", "empty"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "mlms: there is no nowhere; name a manifest or a folder of them",
        "mlms: empty has no .yaml file; name a manifest or a folder of them",
    ]


def test_lint_knows_frameworks_of_another_folder(manifest: Path) -> None:
    from tests.support.project import PREDICTORS

    manifest.write_text(
        manifest.read_text()
        .replace("onnxruntime >=1.17", "faulty")
        .replace("onnxruntime", "faulty")
    )
    assert main(["lint", "manifests"]) == 1
    assert main(["lint", "--mlms-predictors", str(PREDICTORS), "manifests"]) == 0


def test_schema_is_a_json_schema_that_editors_can_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml12.parse((DIGITS / "digits.yaml").read_text()).value, schema)


def test_the_installed_command_runs_and_no_command_is_a_usage_error() -> None:
    mlms = Path(sys.executable).parent / "mlms"
    assert (
        "lint"
        in subprocess.run([mlms, "--help"], capture_output=True, text=True, check=True).stdout
    )
    assert subprocess.run([mlms], capture_output=True).returncode == 2


def test_a_reader_that_has_seen_enough_is_no_fault() -> None:
    mlms = Path(sys.executable).parent / "mlms"
    done = subprocess.run(f"{mlms} schema | head -n 1", shell=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_lint_checks_stacks_files_too(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stacks = manifest.parent / "stacks.yaml"
    stacks.write_text("fine: {interpreter: current}\n")
    assert main(["lint", "manifests"]) == 0
    stacks.write_text(
        "fine: {interpreter: current}\nodd: {framework: pytroch, requirements: [six]}\n"
    )
    assert main(["lint", "manifests"]) == 1
    assert capsys.readouterr().out.startswith(
        "manifests/stacks.yaml:2: no predictor for 'pytroch'; did you mean"
    )
