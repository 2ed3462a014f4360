"""Digests of files, their check, and the record of those that their manifest leaves open."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.keep.results.item_result import identity_of
from pytest_mlms.manifest import load
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.provide.artifacts.digest import check_digest, digest_of
from pytest_mlms.provide.artifacts.fetch import check_local, fetch, fetch_files
from tests.support.cases import digits_case
from tests.support.fileserver import DATA, DIGEST, FileServer
from tests.support.small_manifest import error_of, small, write

HERE = Place(Path("m.yaml"), 12)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(b"data")
    return path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_digest_is_the_sha256_of_the_content(path: Path) -> None:
    assert digest_of(path) == sha256(b"data")


def test_a_file_that_changed_is_read_again(path: Path) -> None:
    assert digest_of(path) == sha256(b"data")
    path.write_bytes(b"atad")  # of the same size
    os.utime(path, ns=(1, 1))
    assert digest_of(path) == sha256(b"atad")


def test_a_file_with_the_digest_of_the_manifest_passes(path: Path) -> None:
    check_digest(Artifact(str(path), sha256(b"data"), HERE), path)


def test_an_artifact_without_a_digest_is_not_checked(path: Path) -> None:
    check_digest(Artifact(str(path), None, HERE), path)


def test_a_wrong_digest_is_an_error_that_shows_both(path: Path) -> None:
    wrong = "0" * 64
    expected = f"m.yaml:12: {path} has sha256 {sha256(b'data')}, expected {wrong}; restore"
    with pytest.raises(ArtifactError, match=expected):
        check_digest(Artifact(str(path), wrong, HERE), path)


OTHER = hashlib.sha256(b"other").hexdigest()


def manifest_of(folder: Path, graph: str, **changes: Any) -> LoadedManifest:
    """Return a manifest whose graph is unpinned."""
    model = {"framework": "mxnet", "graph": graph, "sha256": "unpinned"}
    return load(write(folder, small(models=[model], **changes)))


def fetched(loaded: LoadedManifest, cache: Path) -> tuple[Path, str]:
    """Return the file of the graph, and the warning that it is unpinned."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        path = fetch_files(loaded, loaded.manifest.models[0], cache).model["graph"]
    (warning,) = found
    assert (warning.filename, warning.lineno) == (str(loaded.path), 6)
    return path, str(warning.message)


def test_a_download_is_recorded_and_then_checked(server: FileServer, tmp_path: Path) -> None:
    loaded = manifest_of(tmp_path, server.url())
    path, message = fetched(loaded, tmp_path / "cache")
    assert path.read_bytes() == DATA
    assert message == f"unpinned; its sha256 is recorded now in m.sha256; write 'sha256: {DIGEST}'"
    assert (tmp_path / "m.sha256").read_text() == f"{DIGEST}  {server.url()}\n"
    again, message = fetched(loaded, tmp_path / "cache")
    assert again == path
    assert "its sha256 is recorded in m.sha256; write" in message
    assert len(server.asked) == 1
    server.files["/data.bin"] = b"other"
    with pytest.warns(UserWarning, match="unpinned"), pytest.raises(ArtifactError) as raised:
        fetch(loaded.model_files(loaded.manifest.models[0])["graph"], tmp_path / "new cache")
    assert f"recorded in {tmp_path / 'm.sha256'}; remove its line there" in str(raised.value)


def test_a_local_file_is_recorded_and_then_checked(tmp_path: Path) -> None:
    graph = tmp_path / "my model.onnx"
    graph.write_bytes(DATA)
    loaded = manifest_of(tmp_path, graph.name)
    assert list(check_local(loaded)) == []
    assert not (tmp_path / "m.sha256").exists()
    assert fetched(loaded, tmp_path / "cache")[0] == graph
    assert (tmp_path / "m.sha256").read_text() == f"{DIGEST}  my model.onnx\n"
    graph.write_bytes(b"other")
    (error,) = check_local(loaded)
    assert f"has sha256 {OTHER}, expected {DIGEST}; restore the file, or remove" in str(error)
    with pytest.warns(UserWarning, match="unpinned"), pytest.raises(ArtifactError):
        fetch_files(loaded, loaded.manifest.models[0], tmp_path / "cache")


def test_secrets_of_an_address_are_not_recorded(server: FileServer, tmp_path: Path) -> None:
    for secret in ("one", "two"):
        fetched(manifest_of(tmp_path, server.url(f"/data.bin?token={secret}")), tmp_path / "cache")
    text = (tmp_path / "m.sha256").read_text()
    assert text.count("token=***") == 2
    assert "one" not in text
    assert len(set(text.splitlines())) == 2


def test_results_have_the_recorded_digest(tmp_path: Path) -> None:
    case = digits_case()
    loaded = manifest_of(tmp_path, "graph")
    (tmp_path / "graph").write_bytes(DATA)
    model = loaded.manifest.models[0]
    changed = {"loaded": loaded, "model": model}
    unpinned = identity_of(type(case)(**{**vars(case), **changed}))
    assert unpinned.model.sha256 == {"graph": "unpinned"}
    fetched(loaded, tmp_path / "cache")
    assert loaded.model_digests(model) == {"graph": DIGEST}
    assert identity_of(type(case)(**{**vars(case), **changed})).model.sha256["graph"] == DIGEST


def test_a_dataset_may_be_unpinned(tmp_path: Path) -> None:
    dataset = {"name": "d", "version": "1.0.0", "source": "graph", "sha256": "unpinned"}
    loaded = manifest_of(tmp_path, "graph", dataset=dataset)
    (tmp_path / "graph").write_bytes(DATA)
    assert loaded.dataset_digest == "unpinned"
    with pytest.warns(UserWarning, match="unpinned"):
        fetch_files(loaded, loaded.manifest.models[0], tmp_path / "cache")
    assert loaded.dataset_digest == DIGEST


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc  graph\n", r"m\.sha256:1: 'abc  graph' is no digest; write a digest, two blanks"),
        (f"{DIGEST}  graph\n{OTHER}  graph\n", r"m\.sha256:2: graph has another digest above"),
        ("\ud800", r"m\.sha256: can't be read"),
    ],
)
def test_a_record_that_is_wrong_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    loaded = manifest_of(tmp_path, "graph")
    (tmp_path / "graph").write_bytes(DATA)
    (tmp_path / "m.sha256").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ArtifactError, match=message):
        fetch_files(loaded, loaded.manifest.models[0], tmp_path / "cache")
    assert loaded.model_digests(loaded.manifest.models[0]) == {"graph": "unpinned"}


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    loaded = manifest_of(tmp_path, "graph")
    (tmp_path / "graph").write_bytes(DATA)
    (tmp_path / "m.sha256").symlink_to(tmp_path / "none" / "m.sha256")
    _, message = fetched(loaded, tmp_path / "cache")
    assert "its sha256 can't be recorded (No such file or directory) in m.sha256" in message


def test_other_words_are_no_digest(tmp_path: Path) -> None:
    model = {"framework": "mxnet", "graph": "graph", "sha256": "none"}
    assert "write 64 hexadecimal digits" in error_of(tmp_path, small(models=[model]))
