"""Reading of legacy manifests: versions, repeated and misspelt keys, and errors with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.author.legacy.reading import read_legacy
from pytest_mlms.author.legacy.records import Refused
from tests.support.legacy_manifests import A1, A2, detector, read_text, with_lines


def test_versions_are_the_texts_of_their_numbers(tmp_path: Path) -> None:
    manifest = read_text(tmp_path, A2)
    assert manifest.version == "1.10"
    assert manifest.framework.version == "1.12"


def test_a_file_with_other_content_is_none(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yml"
    path.write_text("jobs: []\n")
    assert read_legacy(path) is None


def test_the_lines_of_keys_are_known(tmp_path: Path) -> None:
    manifest = read_text(tmp_path, A2)
    lines = A2.splitlines()
    assert lines[manifest.inputs[0].line["mean"] - 1].strip() == "mean: [30, 20, 10]"
    assert lines[manifest.outputs[0].line["features_url"] - 1].strip().startswith("features_url")
    assert lines[manifest.files.line["graph_path"] - 1].strip().startswith("graph_path")


def test_the_last_of_two_equal_keys_counts_with_a_warning(tmp_path: Path) -> None:
    manifest = read_text(tmp_path, f"{A2}license: MIT\n")
    assert manifest.license == "MIT"
    (note,) = manifest.notes
    assert note.line == len(A2.splitlines()) + 1
    assert "again, first on line 11; the last one counts" in note.text


def test_two_parameters_with_other_keys_are_taken_together(tmp_path: Path) -> None:
    again = "      scale: 2\n    parameters:\n      max_dimension: 9\n"
    manifest = read_text(tmp_path, with_lines(A2, "      scale: 2\n", again))
    assert manifest.inputs[0].scale == (2,)
    assert manifest.inputs[0].max_dimension == 9
    assert "both are taken together" in manifest.notes[0].text


@pytest.mark.parametrize(
    "again",
    [
        "      scale: 2\n    parameters:\n      scale: 3\n",
        "      scale: 2\n      scale: 3\n",
    ],
)
def test_a_parameter_with_two_values_is_an_error(tmp_path: Path, again: str) -> None:
    text = with_lines(A2, "      scale: 2\n", again)
    with pytest.raises(
        Refused, match=r"legacy.yml:\d+: '(parameters|scale)' .*keep one|'scale' di"
    ):
        read_text(tmp_path, text)


def test_a_misspelt_key_is_read_with_a_warning(tmp_path: Path) -> None:
    text = detector(probabilities_layer="'s'").replace("probabilities_", "probailities_")
    manifest = read_text(tmp_path, text.replace("references:", "reference:"))
    assert manifest.references == ("https://example.org/paper",)
    assert manifest.outputs[0].layers["probabilities_layer"] == "s"
    found = "\n".join(note.text for note in manifest.notes)
    assert "'reference'; did you mean 'references'?" in found
    assert "'probailities_layer'; did you mean 'probabilities_layer'?" in found


def test_hidden_under_attributes_hides_nothing(tmp_path: Path) -> None:
    manifest = read_text(tmp_path, f"{A2}  hidden: true\n")
    assert not manifest.is_hidden
    assert "hides nothing" in manifest.notes[0].text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("scale: 2", "scale: wide", ":21: scale is not a number or a list of numbers"),
        ("scale: 2", "scale: [1, 2, yes]", ":21: scale is not a number or a list of numbers"),
        ("[3, 8, 6]", "[3, 0, 6]", ":19: dimensions is not a list of sizes"),
        ("is_archive: false", "is_archive: maybe", ":31: is_archive is not true or false"),
        ("  type: classification", "  kind: x", ":22: there is no 'type'"),
        ("inputs:", "inputs: 3\nothers:", ":12: inputs is not a list"),
        ("name: Small Network", "name: ''", ":1: there is no 'name'"),
        ("scale: 2", "scale: .inf", ":21: scale is not a number"),
        ("license: unrestricted", "license: [", "is not YAML"),
    ],
)
def test_an_error_has_file_and_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(Refused) as error:
        read_text(tmp_path, with_lines(A2, old, new))
    assert message in str(error.value)
    assert ";" in str(error.value)


def test_images_of_containers_are_noticed(tmp_path: Path) -> None:
    assert read_text(tmp_path, A1).has_container
    assert not read_text(tmp_path, A2).has_container
