"""The command ``mlms describe``, as tables and as JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.cli.describe import _scaled
from pytest_mlms.cli.main import main
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from tests.support.frameworks import python_of
from tests.support.onnx_models import ModelBuilder
from tests.support.project import DIGITS, PREDICTORS, copy_digits, write_matrix

DIGITS_ONNX = DIGITS / "digits_cnn.onnx"
COLUMNS = ["layer", "type", "output", "parameters", "FLOPs", "weights", "activations"]


class Command:
    """Runs the command, and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.output = ""
        self.errors = ""

    def run(self, *arguments: str | Path) -> int:
        status = main(["describe", *map(str, arguments)])
        self.output, self.errors = self._capsys.readouterr()
        return status

    def run_matrix(self, *arguments: str | Path) -> int:
        """Run it with the predictors of the tests."""
        return self.run("--mlms-predictors", PREDICTORS, *arguments)

    @property
    def json(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.output)
        return facts


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return Command(capsys)


def test_the_table_has_a_row_a_layer_and_their_sum_within_100_columns(command: Command) -> None:
    assert command.run(DIGITS / "digits.yaml", "--batch-size", "64") == 0
    title, header, *rows = command.output.splitlines()
    assert title.endswith("digits.yaml, batch of 64")
    assert header.split() == COLUMNS
    assert "conv2d_2" in rows[2]
    (total,) = [row for row in rows if row.startswith("in all")]
    assert "25.9 k" in total
    assert "at most 1.00 MiB of activations at once" in rows
    assert all(len(row) <= 100 for row in [header, *rows])


def test_the_table_of_the_top_layers_keeps_the_sum_of_all(command: Command) -> None:
    assert command.run("--top", "2", DIGITS_ONNX) == 0
    _, _, first, second, total, note, *_ = command.output.splitlines()
    by_operations = sorted(
        describe_onnx(DIGITS_ONNX).layers, key=lambda layer: layer.flops or 0, reverse=True
    )
    assert first.startswith(by_operations[0].name)
    assert second.startswith(by_operations[1].name)
    assert total.startswith("in all")
    assert "25.9 k" in total
    assert note == f"2 of {len(by_operations)} layers, those with the most operations"


def test_json_has_the_sums_and_the_layers(command: Command) -> None:
    assert command.run("--json", DIGITS_ONNX) == 0
    cost = describe_onnx(DIGITS_ONNX)
    assert command.json["path"] == str(DIGITS_ONNX)
    assert command.json["stack"] is None
    assert command.json["batch_size"] == 1
    assert command.json["parameters"] == cost.parameters
    assert command.json["activation_bytes"] == cost.activation_bytes
    assert command.json["unknown"] == []
    assert len(command.json["layers"]) == len(cost.layers)


def test_a_file_that_can_not_be_described_is_an_error(command: Command) -> None:
    assert command.run("none.onnx") == 2
    assert command.errors.startswith("mlms: none.onnx can't be described: ")


@pytest.mark.parametrize(
    "option", [["--axis", "words"], ["--axis", "words=many"], ["--batch-size", "0"]]
)
def test_an_option_that_is_no_number_is_a_usage_error(command: Command, option: list[str]) -> None:
    with pytest.raises(SystemExit):
        command.run(*option, DIGITS_ONNX)


def test_a_model_that_is_no_onnx_is_described_by_its_framework(
    command: Command, tmp_path: Path
) -> None:
    assert command.run_matrix(write_matrix(tmp_path, "free"), "--axis", "x.1=3", "--json") == 0
    assert command.json["counter"] == "hand"
    assert command.json["layers"][0]["shape"] == [1, 5]


def test_the_counter_is_named_below_the_table(command: Command, tmp_path: Path) -> None:
    assert command.run_matrix(write_matrix(tmp_path, "free"), "--axis", "x.1=3") == 0
    assert "operations by hand" in command.output


def test_layers_of_unknown_cost_are_named_below_the_table(command: Command, tmp_path: Path) -> None:
    model = ModelBuilder()
    model.add_input("x", 1, 2)
    model.add("Own", "x", "y", domain="mine")
    model.add_output("y")
    assert command.run(model.save(tmp_path)) == 0
    assert "the sums leave out layers of unknown cost: Own" in command.output


def test_a_stack_that_no_model_is_for_is_an_error(command: Command, tmp_path: Path) -> None:
    stack = ["--mlms-stack", "onnxruntime==1.17.0"]
    assert command.run_matrix(write_matrix(tmp_path), *stack) == 2
    assert "m.yaml:5: no model is for onnxruntime==1.17.0" in command.errors


def test_a_folder_without_a_manifest_is_an_error(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert command.run(folder) == 2
    assert "has no .yaml file" in command.errors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of manifests: of a good one, one that can't be described, and half of one."""
    copy_digits(tmp_path / "some")
    write_matrix(tmp_path, "mute")
    (tmp_path / "a.yaml").write_text("name: half\n")
    (tmp_path / "stacks.yaml").write_text("own: {framework: onnxruntime, interpreter: current}\n")
    return tmp_path


def test_the_errors_of_one_manifest_do_not_hide_another(command: Command, folder: Path) -> None:
    assert command.run_matrix(folder) == 2
    assert "digits.yaml, batch of 1" in command.output
    assert "m.yaml:5: matrix doesn't tell" in command.errors
    assert "a.yaml:1: " in command.errors


def test_only_the_models_of_a_chosen_stack_are_described(command: Command, folder: Path) -> None:
    assert command.run_matrix(folder, "--mlms-stack", "own") == 2
    assert "digits.yaml, own, batch of 1" in command.output
    assert "m.yaml:5: no model is for own" in command.errors


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (1000, "1 k"), (1_430_000_000, "1.43 G"), (2_500_000_000_000, "2.5 T")],
)
def test_counts_have_three_digits(count: int, text: str) -> None:
    assert _scaled(count).replace("\u00a0", " ") == text


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_the_counter_of_a_framework_counts_as_we_do(
    command: Command, tmp_path: Path, framework: str
) -> None:
    """Compare torch's FlopCounterMode and TensorFlow's profiler with onnx's shape inference."""
    stack = f"own: {{framework: {framework}, interpreter: {python_of(framework)}}}\n"
    shutil.copytree(DIGITS, tmp_path / "digits")
    (tmp_path / "digits" / "stacks.yaml").write_text(stack)
    options = ["--json", "--batch-size", "4", "--mlms-stack", "own"]
    assert command.run(*options, tmp_path / "digits" / "digits.yaml") == 0
    cost = describe_onnx(DIGITS_ONNX, 4)
    assert command.json["stack"] == "own"
    assert framework in command.json["counter"].lower()
    assert command.json["flops"] == cost.flops
    assert command.json["parameters"] == cost.parameters
    assert command.json["peak_bytes"] == cost.peak_bytes
    assert command.json["unknown"] == []
