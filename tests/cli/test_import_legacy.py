"""``mlms import``: native manifests, warnings, refusals and the table."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.manifest import load
from tests.support.legacy_manifests import A0, A1, A2, with_lines, with_python


@pytest.fixture
def originals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with a folder of originals; return that."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models"
    (folder / "old").mkdir(parents=True)
    (folder / "small.yml").write_text(A2)
    (folder / "recent.yml").write_text(with_python("torchvision", "softmax"))
    (folder / "old" / "old.yml").write_text(A1)
    (folder / "old" / "stub.yml").write_text(A0)
    (folder / "jobs.yml").write_text("jobs: []\n")
    return folder


def test_a_folder_becomes_native_manifests_in_the_same_folders(
    originals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "models"]) == 1  # one is refused
    printed = capsys.readouterr()
    found = sorted(path.relative_to("imported") for path in Path("imported").rglob("*.yaml"))
    assert found == [Path("old/old.yaml"), Path("recent.yaml"), Path("small.yaml")]
    for path in found:
        load(Path("imported", path))
    assert main(["lint", "imported"]) == 0
    assert printed.out.splitlines()[:6] == [
        "framework    modality               read  written  accuracy  speed only  refused",
        "MXNet        image classification      2        1         1           0        1",
        "ONNX Runtime image classification      1        1         1           0        0",
        "TensorFlow   image classification      1        1         1           0        0",
        "all                                    4        3         3           0        1",
        "",
    ]
    assert "     1  no model file" in printed.out
    assert "models/old/stub.yml:7: has no model file" in printed.err
    assert "1 manifest names images of containers" in printed.err
    assert "1 other YAML file was left alone" in printed.err


def test_a_file_is_imported_where_it_is_asked_for(originals: Path) -> None:
    assert main(["import", "models/small.yml", "--out", "native"]) == 0
    assert load(Path("native/small.yaml")).manifest.name == "Small_Network"


def test_the_training_dataset_is_the_one_of_a_datasets_yaml(
    originals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "models/small.yml"]) == 0
    assert "datasets.yaml" not in capsys.readouterr().err
    described = f"imagenet: {{version: 1.0.0, source: data.npz, sha256: '{'0' * 64}'}}\n"
    Path("imported/datasets.yaml").write_text(described)
    dataset = load(Path("imported/small.yaml")).manifest.dataset
    assert dataset is not None
    assert dataset.name == "imagenet"


def test_manifests_that_are_there_are_replaced_only_by_force(
    originals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "models/small.yml"]) == 0
    assert main(["import", "models/small.yml"]) == 2
    assert "--force replaces" in capsys.readouterr().err
    assert main(["import", "models/small.yml", "--force"]) == 0


def test_an_original_is_never_replaced(originals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = originals / "small.yaml"
    original.write_text(A2)
    assert main(["import", "models/small.yaml", "--out", "models", "--force"]) == 2
    assert "would be replaced; name another folder with --out" in capsys.readouterr().err
    assert original.read_text() == A2
    assert main(["import", "models"]) == 2
    assert "would both become imported/small.yaml" in capsys.readouterr().err


def test_a_dataset_is_given_for_manifests_that_name_it(originals: Path) -> None:
    data = Path("data.npz")
    data.write_bytes(b"labelled")
    options = ["--dataset", "imagenet=data.npz", "--dataset", "coco=data.npz"]
    assert main(["import", "models/small.yml", *options]) == 0
    dataset = load(Path("imported/small.yaml")).manifest.dataset
    assert dataset is not None
    assert (dataset.name, dataset.source) == ("imagenet", "../data.npz")
    assert dataset.sha256 == hashlib.sha256(b"labelled").hexdigest()
    assert main(["import", "models/recent.yml", *options]) == 0
    assert load(Path("imported/recent.yaml")).manifest.dataset is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["models/jobs.yml"], "no manifest of MLModelScope is there"),
        (["nowhere"], "there is no nowhere"),
        (["models", "--dataset", "imagenet=nowhere"], "nowhere does not exist"),
        (["models", "--dataset", "imagenet=models"], "models is a folder"),
        (["models/small.yml", "--out", "models/jobs.yml"], "can't be written"),
    ],
)
def test_a_wrong_call_says_what_to_do(
    originals: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert main(["import", *words]) == 2
    printed = capsys.readouterr().err
    assert problem in printed
    assert "Traceback" not in printed


def test_a_dataset_without_a_file_is_an_error_of_the_command_line(
    originals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["import", "models", "--dataset", "imagenet"])
    assert "'imagenet' is not NAME=FILE" in capsys.readouterr().err


def test_one_file_with_two_digests_is_a_warning(
    originals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = with_lines(A2, "1111111111", "3333333333")
    (originals / "zweit.yml").write_text(other)
    main(["import", "models"])
    printed = capsys.readouterr().err
    assert (
        "models/zweit.yml:32: warning: https://example.org/small.pb has another digest" in printed
    )
    assert "in models/small.yml:32" in printed


def test_a_file_that_is_no_yaml_is_refused_by_line(
    originals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (originals / "broken.yml").write_text("name: [\n")
    assert main(["import", "models/broken.yml"]) == 1
    assert "models/broken.yml:2: is not YAML" in capsys.readouterr().err


def test_what_no_native_manifest_can_say_is_refused(
    originals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = with_lines(A2, "[3, 8, 6]", "[3, 90000, 90000]")
    (originals / "large.yml").write_text(text)
    assert main(["import", "models/large.yml"]) == 1
    assert "models/large.yml:1: has no native form" in capsys.readouterr().err
    assert not list(Path("imported").rglob("*.yaml"))
