"""Original manifests that are loaded as they are."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from pytest_mlms.author.loading import NoManifestError, load_manifest
from pytest_mlms.cli.main import main
from pytest_mlms.core.errors import ManifestError
from pytest_mlms.manifest.load import LoadedManifest, Origin
from tests.support.legacy_manifests import A0, A1, A2, with_lines, with_python
from tests.support.project import MANIFEST

B = with_python("torchvision", "softmax")
MD5 = "11111111111111111111111111111111"


def loaded(folder: Path, text: str) -> LoadedManifest:
    """Return the manifest of a text, which gives no warning."""
    path = folder / "legacy.yml"
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_manifest(path)


def origin_of(folder: Path, text: str) -> Origin:
    origin = loaded(folder, text).origin
    assert origin is not None
    return origin


def line_of(text: str, part: str) -> int:
    """Return the number of the only line that has a part."""
    (number,) = [number for number, line in enumerate(text.splitlines(), start=1) if part in line]
    return number


def test_an_original_is_loaded_as_its_translation(tmp_path: Path) -> None:
    found = loaded(tmp_path, A2)
    assert found.path == tmp_path / "legacy.yml"
    assert found.manifest.name == "Small_Network"
    assert found.manifest.models[0].framework == "tensorflow ==1.12.*"
    assert found.manifest.models[0].or_nearest


def test_places_are_lines_of_the_original(tmp_path: Path) -> None:
    found = loaded(tmp_path, A2)
    graph = found.model_files(found.manifest.models[0])["graph"]
    assert graph.place.path == tmp_path / "legacy.yml"
    assert graph.place.line == line_of(A2, "graph_path")
    assert found.place("models", 0, "sha256").line == line_of(A2, "graph_checksum")
    assert found.place("version").line == line_of(A2, "version: 1.10")
    assert found.place("models", 0, "framework").line == line_of(A2, "version: 1.12")
    assert found.place("inputs", 0, "layout").line == line_of(A2, "layout")
    assert found.place("inputs", 0, "steps", 1).line == line_of(A2, "dimensions")


@pytest.mark.parametrize("text", [A1, A2, B], ids=["A1", "A2", "B"])
def test_the_places_of_all_keys_are_within_the_original(tmp_path: Path, text: str) -> None:
    found = loaded(tmp_path, text)
    last = len(text.splitlines())
    for section in ("name", "task", "models", "inputs", "outputs"):
        assert 1 <= found.place(section, 0, "steps", 0).line <= last


def test_decisions_have_their_lines(tmp_path: Path) -> None:
    places = {remark.text: remark.place for remark in origin_of(tmp_path, A2).decisions}
    line = line_of(A2, "version: 1.10")
    assert places["version: the original has 1.10"] == f"{tmp_path / 'legacy.yml'}:{line}"
    assert "name: the original's name is 'Small Network'" in places


def test_warnings_have_their_lines(tmp_path: Path) -> None:
    text = with_lines(A2, f"  graph_checksum: {MD5}\n", "")
    (warning,) = origin_of(tmp_path, text).warnings
    assert "there is no graph_checksum" in warning.text
    assert warning.place.endswith(f":{line_of(text, 'graph_path')}")


def test_a_dataset_that_nothing_describes_is_named_without_a_warning(tmp_path: Path) -> None:
    assert origin_of(tmp_path, A2).dataset == "imagenet"
    assert loaded(tmp_path, A2).manifest.dataset is None


def test_a_described_dataset_is_that_of_the_original(tmp_path: Path) -> None:
    entry = f"imagenet: {{version: 1.0.0, source: in.zip, sha256: '{'0' * 64}'}}\n"
    (tmp_path / "datasets.yaml").write_text(entry)
    found = loaded(tmp_path, A2)
    assert found.dataset_file is not None
    assert found.dataset_file.source == str(tmp_path / "in.zip")
    assert found.origin is not None
    assert found.origin.dataset == ""


def test_digests_are_recorded_beside_the_original(tmp_path: Path) -> None:
    found = loaded(tmp_path, with_lines(A2, f"  graph_checksum: {MD5}\n", ""))
    recorded = found.model_files(found.manifest.models[0])["graph"].recorded
    assert recorded is not None
    assert recorded.file == tmp_path / "legacy.sha256"


def test_a_digest_of_decimal_digits_is_no_number(tmp_path: Path) -> None:
    digits = "12345678901234567890123456789012"
    text = with_lines(A2, MD5, digits)
    assert loaded(tmp_path, text).manifest.models[0].sha256["graph"] == f"md5:{digits}"


def test_a_key_that_is_there_twice_is_a_warning(tmp_path: Path) -> None:
    origin = origin_of(tmp_path, f"{A2}license: MIT\n")
    assert any("'license' is there again" in remark.text for remark in origin.warnings)


def test_refusals_have_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as refused:
        loaded(tmp_path, A0)
    line = line_of(A0, "trained_url")
    assert str(refused.value).startswith(f"{tmp_path / 'legacy.yml'}:{line}: has no model file")


def test_errors_of_the_translation_have_lines_of_the_original(tmp_path: Path) -> None:
    text = with_lines(A2, "scale: 2", "scale: 0")
    with pytest.raises(ManifestError) as refused:
        loaded(tmp_path, text)
    assert f"legacy.yml:{line_of(text, 'mean: ')}: " in str(refused.value)


def test_unknown_python_is_refused_with_its_line(tmp_path: Path) -> None:
    text = with_python("def preprocess(ctx, data):\n    return 1\n", "softmax")
    with pytest.raises(ManifestError) as refused:
        loaded(tmp_path, text)
    assert f":{line_of(text, 'preprocess: |')}: preprocess is Python" in str(refused.value)


def test_a_file_of_something_else_is_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(NoManifestError):
        loaded(tmp_path, "language: go\nscript: [make]\n")


@pytest.mark.parametrize("text", ["models: []\n", "framework: {name: x}\n", "a: [\n", ""])
def test_a_manifest_with_errors_is_one(tmp_path: Path, text: str) -> None:
    with pytest.raises(ManifestError) as refused:
        loaded(tmp_path, text)
    assert not isinstance(refused.value, NoManifestError)


def test_a_native_manifest_has_no_origin() -> None:
    assert load_manifest(MANIFEST).origin is None


@pytest.mark.parametrize("text", [A1, A2, B], ids=["A1", "A2", "B"])
def test_what_is_imported_is_what_is_loaded(tmp_path: Path, text: str) -> None:
    found = loaded(tmp_path, text)
    assert main(["import", str(found.path), "--out", str(tmp_path)]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the dataset
        written = load_manifest(tmp_path / "legacy.yaml")
    assert written.manifest == found.manifest
