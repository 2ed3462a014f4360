"""Tests of the loading of manifests: files, limits and artifacts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import ManifestError, MlmsError
from pytest_mlms.manifest import find_manifests, load
from tests.support.manifest_strategies import mutated_manifests
from tests.support.project import DIGITS
from tests.support.small_manifest import DATASET, DIGEST, small, write


def test_a_limit_knows_its_line_in_the_shipped_manifest() -> None:
    path = DIGITS / "digits.yaml"
    limits = {limit.quantity: limit for limit in load(path).limits("performance")}
    number = limits["latency_p50"].place.line
    assert "latency_p50" in path.read_text().splitlines()[number - 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ":1: is empty; a manifest begins with 'name: …'"),
        (b"- a\n", ":1: holds a list, not keys and values"),
        (b"digits\n", ":1: holds one value, not keys and values"),
        (b"\xff\xfe\x00", r":1: is not UTF-8 \(byte 0\); save it as UTF-8"),
        (
            b"\x89PNG\x00",
            "save it as UTF-8, or name another file: a manifest begins with 'name: …'",
        ),
        (b"a: 1\n\xff", r":2: is not UTF-8"),
        (b"x" * (1 << 20) + b"yy", ":1: can't be read: it is larger than 1,024 KiB"),
    ],
)
def test_a_file_that_can_not_be_a_manifest_is_an_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(content)
    with pytest.raises(ManifestError, match=message):
        load(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    message = "can't be read: No such file or directory; check the path"
    with pytest.raises(ManifestError, match=message):
        load(tmp_path / "none.yaml")


def test_a_pipe_or_a_device_is_an_error_and_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(ManifestError, match="it is a device, a pipe or a socket; check the"):
            load(path)


def test_an_error_of_a_long_value_is_short(tmp_path: Path) -> None:
    content = small(name="x" * 10_000, task="y" * 10_000 + "!", seeds={"z" * 10_000: 1})
    with pytest.raises(ManifestError) as raised:
        load(write(tmp_path, content))
    assert all(len(line) < 1200 for line in str(raised.value).splitlines())


def test_the_errors_of_a_file_are_shown_up_to_a_hundred(tmp_path: Path) -> None:
    content = small(references=[1] * 5000)
    with pytest.raises(ManifestError, match=": 4,900 further errors; correct these first"):
        load(write(tmp_path, content))


def test_a_limit_may_be_one_or_a_list_for_different_cases(tmp_path: Path) -> None:
    limits = [{"max": "1 ms", "batch_sizes": [1]}, {"max": "9 ms", "batch_sizes": [8]}]
    thresholds = {"latency_p90": limits, "throughput": {"min": "1 /s"}}
    content = small(evaluate={"batch_sizes": [1, 8]}, thresholds=thresholds)
    found = []
    for limit in load(write(tmp_path, content)).limits("performance"):
        found.append((limit.quantity, limit.value, limit.batch_sizes))
    assert found == [
        ("latency_p90", 0.001, (1,)),
        ("latency_p90", 0.009, (8,)),
        ("throughput", 1, ()),
    ]


def test_an_agreement_is_a_limit_on_the_deviation_and_further_ones(tmp_path: Path) -> None:
    on_cuda = {"reference": "onnxruntime", "rtol": 0.01, "devices": ["cuda"]}
    on_cpu = {
        "reference": "onnxruntime",
        "top1": {"min": "99 %"},
        "kl": {"max": 1e-6},
        "devices": ["cpu"],
    }
    content = small(
        evaluate={"devices": ["cpu", "cuda"]}, thresholds={"agreement": [on_cuda, on_cpu]}
    )
    found = []
    for limit in load(write(tmp_path, content)).limits("agreement"):
        found.append((limit.quantity, limit.value, limit.devices))
    assert found == [
        ("deviation", 1, ("cuda",)),
        ("deviation", 1, ("cpu",)),
        ("same_top1", 0.99, ("cpu",)),
        ("kl_max", 1e-6, ("cpu",)),
    ]


def model_with(framework: str, **files: str) -> dict[str, Any]:
    return {"framework": framework, "sha256": dict.fromkeys(files, DIGEST), **files}


def test_a_relative_source_is_beside_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    content = small(models=[model_with("onnxruntime", graph="../a b/model.onnx")])
    loaded = load(write(tmp_path / "sub", content))
    graph = loaded.model_files(loaded.manifest.models[0])["graph"]
    assert graph.source == str(tmp_path / "a b" / "model.onnx")
    assert graph.member is None


def test_a_source_may_be_a_member_of_an_archive_or_a_url(tmp_path: Path) -> None:
    archive = (tmp_path / "x.zip").as_uri()
    model = model_with("mxnet", graph=f"{archive}#in/x.json", weights="https://h/w.params")
    loaded = load(write(tmp_path, small(models=[model])))
    files = loaded.model_files(loaded.manifest.models[0])
    assert files["graph"].source == str(tmp_path / "x.zip")
    assert files["graph"].member == "in/x.json"
    assert files["weights"].source == "https://h/w.params"


def test_the_dataset_is_a_file_of_the_manifest(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, small(dataset=DATASET)))
    assert loaded.dataset_file is not None
    assert loaded.dataset_file.source == str(tmp_path / "d.npz")
    assert load(write(tmp_path, small())).dataset_file is None


def test_the_labels_are_a_file_of_the_manifest_with_its_line(tmp_path: Path) -> None:
    steps = ["softmax", {"top_k": {"labels": "labels.txt"}}]
    output = {"name": "y", "type": "classification", "steps": steps}
    path = write(tmp_path, small(outputs=[output]))
    labels = load(path).labels_file
    assert labels is not None
    assert labels.source == str(tmp_path / "labels.txt")
    assert "labels.txt" in path.read_text().splitlines()[labels.place.line - 1]


def test_manifests_are_found_in_folders_and_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first = tmp_path / "a" / "b.yaml"
    second = tmp_path / "a" / "c.yml"
    for path in (second, first, tmp_path / "a" / "notes.txt"):
        path.touch()
    assert list(find_manifests([tmp_path, second])) == [first, second, second]


def test_only_files_are_found_in_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "device.yaml").symlink_to("/dev/zero")
    inner = tmp_path / "folder.yaml" / "m.yaml"
    inner.touch()
    assert list(find_manifests([tmp_path])) == [inner]


def test_a_path_without_manifests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="has no .yaml file; name a manifest or a folder"):
        list(find_manifests([tmp_path]))
    with pytest.raises(MlmsError, match="there is no .*none; name a manifest or a folder"):
        list(find_manifests([tmp_path / "none"]))


@given(mutated_manifests())
def test_a_mutated_manifest_has_errors_with_an_advice_each(tmp_path: Path, content: object) -> None:
    path = write(tmp_path, json.dumps(content, ensure_ascii=False))
    try:
        load(path, ["onnxruntime"])
    except ManifestError as error:
        for line in str(error).splitlines():
            assert line.startswith(f"{path}:1: "), line
            assert "; " in line, line


ANY_TEXT = st.text(max_size=300)
ANY_BYTES = st.binary(max_size=300).map(lambda data: data.decode("latin-1"))


@given(ANY_TEXT | ANY_BYTES)
def test_any_text_is_a_manifest_error_and_no_other(tmp_path: Path, text: str) -> None:
    with pytest.raises(ManifestError):
        load(write(tmp_path, text))
