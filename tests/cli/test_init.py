"""``mlms init``."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.author.draft import measuring
from pytest_mlms.author.draft.model_files import recognise_models
from pytest_mlms.cli.init import _command, _option, _without_draft
from pytest_mlms.cli.main import main
from pytest_mlms.cli.shapes import input_shape
from pytest_mlms.manifest import load
from tests.support.printed import mlms_options
from tests.support.project import DIGITS, PREDICTORS, write_matrix


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the digits network as model.onnx."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS / "digits_cnn.onnx", tmp_path / "model.onnx")
    return tmp_path


def write_pictures(folder: Path) -> None:
    """Write the digits as pictures, a folder for each class."""
    with np.load(DIGITS / "digits_test.npz") as digits:
        for number, (pixels, label) in enumerate(
            zip(digits["image"], digits["label"], strict=True)
        ):
            path = folder / str(label)
            path.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * 15).astype(np.uint8)).save(path / f"{number}.png")


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the error of a command that must fail as one that was called wrongly."""
    assert main(["init", *words]) == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow  # 8 s
def test_a_model_and_a_folder_of_pictures_become_a_gate_that_passes(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_PROCESSES", 1)
    write_pictures(folder / "pictures")
    assert main(["init", "model.onnx", "--data", "pictures"]) == 0
    command = capsys.readouterr().out.strip()
    assert command == "pytest model.yaml"
    manifest = load(folder / "model.yaml").manifest
    assert manifest.task == "image-classification"
    assert [step.name for step in manifest.inputs[0].steps] == ["decode", "resize", "normalize"]
    assert {"top1", "latency_p50", "peak_memory"} <= manifest.thresholds.model_fields_set
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "-k", "accuracy", "--mlms-strict"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert main(["lint", "model.yaml"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["modell.onnx"], "mlms: there is no modell.onnx; did you mean model.onnx?"),
        (["model.onnx", "--output", "m.json"], "the name of a manifest ends in .yaml"),
        (["model.onnx", "--output", "no/m.yaml"], "there is no folder no; make it, or name"),
        (["model.onnx", "--output", "old.yaml"], "old.yaml is there already; --force replaces it"),
        (["model.onnx", "--data", "nowhere"], "there is no nowhere; name a folder with a folder"),
        (["model.onnx", "--option", "tflite:a=b"], "--option tflite:a: no model is for tflite"),
        (["broken.onnx"], "mlms: broken.onnx"),
        (["model.onnx", "--shape", "imag=1,1,8,8"], "has no input 'imag'; did you mean 'image'?"),
        (
            ["model.onnx", "--shape", "image=8,8"],
            "is of 2, and the axes of the model's input are 4",
        ),
        (["model.onnx", *("--shape", "image=1,1,8,8") * 2], "--shape image=… is there twice"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (folder / "old.yaml").write_text("mine")
    (folder / "broken.onnx").write_bytes(b"<html>")
    before = sorted(folder.iterdir())
    assert message in error_of(capsys, *words)
    assert sorted(folder.iterdir()) == before
    assert (folder / "old.yaml").read_text() == "mine"


def test_other_classes_than_the_models_ask_for_their_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cat", "dog"):
        (folder / "pets" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(folder / "pets" / name / "1.png")
    before = sorted(folder.iterdir())
    error = error_of(capsys, "model.onnx", "--data", "pets")
    assert "pets has 2 classes, and the model 10; name the file with the model's" in error
    (folder / "names.txt").write_text("".join(f"pet {number}\n" for number in range(10)))
    before = sorted(folder.iterdir())
    error = error_of(capsys, "model.onnx", "--data", "pets", "--labels", "names.txt")
    assert "names.txt has no class 'cat', which a folder is called; write one of pet 0" in error
    assert sorted(folder.iterdir()) == before


def test_a_framework_that_is_missing_is_named_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of(capsys, "cntk=model.onnx")
    assert "cntk can't be imported in stack here" in error
    assert "use --mlms-stack 'cntk'" in error


def test_an_error_names_the_draft_and_no_temporary_file(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_mlms.author.draft.parts.Draft.text", lambda _: "nothing: 1\n")
    for target in ("m.yaml", str(folder / "m.yaml")):
        assert main(["init", "model.onnx", "--output", target]) == 2
        text = capsys.readouterr().err
        assert "line 1 of the draft (nothing: 1): " in text
        assert ".m.yaml" not in text


def test_an_error_of_a_measurement_names_no_file_that_is_gone(tmp_path: Path) -> None:
    draft = tmp_path / ".m.yaml.1"
    draft.write_text("dataset:\n  source: d.npz\n")
    ids = f"{draft}::test_accuracy[onnxruntime-cpu]"
    text = f"{draft}:2: d.npz: no\n  reproduce: pytest -c/dev/null '{ids}'\n{ids}, x/{draft.name}:7"
    assert _without_draft(text, draft).splitlines() == [
        "line 2 of the draft (source: d.npz): d.npz: no",
        "the draft::test_accuracy[onnxruntime-cpu], line 7 of the draft ()",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inter_op_threads=4", 4),
        ("mem_pattern=false", False),
        ("config.x=0.5", 0.5),
        ("mode=compile", "compile"),
        ("class='4'", "4"),
        ("inputs=image float32[?,1,8,8]; mask int64[?]", "image float32[?,1,8,8]; mask int64[?]"),
        ("arguments=[1, 2]", "[1, 2]"),
        ("class=", ""),
    ],
)
def test_a_value_of_an_option_has_the_type_that_it_has_in_a_manifest(
    text: str, value: object
) -> None:
    found = _option(text)[-1]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "name", "shape"),
    [
        ("wav=1,16000", "wav", (1, 16000)),
        ("state:0=2, batch,128", "state:0", (2, "batch", 128)),
        ("a=b=3", "a=b", (3,)),
        ("rate=", "rate", ()),
    ],
)
def test_a_shape_is_a_name_and_its_axes(text: str, name: str, shape: object) -> None:
    assert input_shape(text) == (name, shape)


@pytest.mark.parametrize("text", ["wav", "=1", "x=0", "x=-1", "x=1,?", "x=batch,batch", "x=1,,2"])
def test_what_is_no_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="sizes above 0 and 'batch' for one axis"):
        input_shape(text)


def test_a_draft_is_measured_without_the_settings_of_a_persons_own_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "_PROCESSES", 1)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--mlms-soak=1 --mlms-history=own.sqlite")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmlms_aa = true\nmlms_history = own.sqlite\n")
    manifest = write_matrix(tmp_path)
    runs = measuring.measure_twice(manifest, [f"--mlms-predictors={PREDICTORS}"])
    assert [{item["kind"] for item in run} for run in runs] == [{"performance"}] * 2
    assert not (tmp_path / "own.sqlite").exists()
    assert not (tmp_path / "mlms-results").exists()


def test_the_cache_of_init_is_that_of_its_measurements_and_of_the_command(folder: Path) -> None:
    options = mlms_options(["mlms", "init", "model.onnx", "--mlms-cache", "my cache"])
    command = _command(Path("model.yaml"), options, recognise_models(["model.onnx"], {}))
    assert command == "pytest model.yaml --mlms-cache 'my cache'"
