"""Artifacts from local files, archives and a real HTTP server."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.manifest.load import LoadedManifest, load
from pytest_mlms.provide.artifacts.fetch import check_local, default_cache, fetch, fetch_files
from tests.support.archives import write_tar, write_zip
from tests.support.fileserver import DATA, DIGEST, FileServer
from tests.support.project import DIGITS, copy_digits

HERE = Place(Path("m.yaml"), 12)


def artifact(source: str, sha256: str | None = DIGEST, member: str | None = None) -> Artifact:
    return Artifact(source, sha256, HERE, member)


def archive_of(path: Path, member: str | None = None) -> Artifact:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return artifact(str(path), digest, member)


def in_cache(cache: Path) -> set[str]:
    """Return the names of the files in the cache, but locks."""
    names = set()
    for path in cache.rglob("*"):
        if path.is_file() and path.suffix != ".lock":
            names.add(path.name)
    return names


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    return path


def test_a_local_file_is_used_where_it_is(data: Path, tmp_path: Path) -> None:
    assert fetch(artifact(str(data)), tmp_path / "cache") == data
    assert not (tmp_path / "cache").exists()


def test_a_local_file_is_checked(data: Path, tmp_path: Path) -> None:
    data.write_bytes(b"changed")
    with pytest.raises(ArtifactError, match=f"expected {DIGEST}; restore the file"):
        fetch(artifact(str(data)), tmp_path)


def test_a_missing_file_is_an_error_with_the_manifests_line(tmp_path: Path) -> None:
    message = r"^m\.yaml:12: .*none\.bin does not exist; correct the path"
    with pytest.raises(ArtifactError, match=message):
        fetch(artifact(str(tmp_path / "none.bin")), tmp_path)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is a folder, not a file"):
        fetch(artifact(str(tmp_path)), tmp_path)


def test_a_download_is_kept_under_its_digest(server: FileServer, tmp_path: Path) -> None:
    path = fetch(artifact(server.url("/data.bin?token=x")), tmp_path)
    assert path.read_bytes() == DATA
    assert path.parent.name == DIGEST
    assert path.name == "data.bin"
    assert in_cache(tmp_path) == {"data.bin"}


def test_a_download_is_made_once(server: FileServer, tmp_path: Path) -> None:
    first = fetch(artifact(server.url()), tmp_path)
    second = fetch(artifact(server.url()), tmp_path)
    assert first == second
    assert len(server.asked) == 1


def test_what_a_killed_process_left_is_removed(server: FileServer, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / DIGEST[:2] / DIGEST
    folder.mkdir(parents=True)
    (folder / "tmpleft").write_bytes(b"of a killed process")
    fetch(artifact(server.url()), tmp_path)
    assert in_cache(tmp_path) == {"data.bin"}


def test_a_cached_file_that_was_damaged_is_downloaded_again(
    server: FileServer, tmp_path: Path
) -> None:
    path = fetch(artifact(server.url()), tmp_path)
    path.write_bytes(b"damaged")
    fetch(artifact(server.url()), tmp_path)
    assert path.read_bytes() == DATA


def test_a_failed_download_is_an_error_with_the_manifests_line(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.url("/none.bin")
    with pytest.raises(ArtifactError, match=f"^m.yaml:12: {url}: the server answered 404"):
        fetch(artifact(url), tmp_path)
    assert in_cache(tmp_path) == set()


def fetch_in_process(url: str, cache: Path) -> str:
    path = fetch(artifact(url), cache)
    return str(path)


def test_processes_that_fetch_at_the_same_time_make_one_download(
    server: FileServer, tmp_path: Path
) -> None:
    arguments = [(server.url(), tmp_path)] * 8
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        paths = pool.starmap(fetch_in_process, arguments)
    assert len(set(paths)) == 1
    assert len(server.asked) == 1


def test_a_cache_that_can_not_be_written_is_an_error_with_the_option(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "artifacts").write_text("a file in the way")
    with pytest.raises(ArtifactError, match="name another cache with --mlms-cache"):
        fetch(artifact(server.url()), tmp_path)


@pytest.fixture(params=["a.zip", "a.tar.gz"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write: Callable[..., Path] = write_zip if request.param == "a.zip" else write_tar
    return write(tmp_path / request.param, {"in/model.bin": b"model", "readme": b"text"})


def test_an_archive_is_fetched_as_its_folder(archive: Path, tmp_path: Path) -> None:
    folder = fetch(archive_of(archive), tmp_path / "cache")
    assert sorted(path.name for path in folder.iterdir()) == ["in", "readme"]


def test_a_member_of_an_archive_is_fetched_alone(archive: Path, tmp_path: Path) -> None:
    path = fetch(archive_of(archive, "in/model.bin"), tmp_path / "cache")
    assert path.read_bytes() == b"model"


@pytest.mark.parametrize("member", ["x", "../a"])
def test_a_member_that_is_not_in_the_archive_is_an_error_with_its_content(
    archive: Path, tmp_path: Path, member: str
) -> None:
    message = f"{archive.name} has no '{member}'; it has in, in/model.bin, readme"
    with pytest.raises(ArtifactError, match=message):
        fetch(archive_of(archive, member), tmp_path / "cache")


def test_an_unsafe_archive_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip", {"../out": b"x"})
    with pytest.raises(ArtifactError, match=r"^m\.yaml:12: .*a\.zip can't be unpacked: "):
        fetch(archive_of(archive), tmp_path / "cache")
    assert in_cache(tmp_path / "cache") == set()


@pytest.fixture
def digits() -> LoadedManifest:
    return load(DIGITS / "digits.yaml")


def test_the_files_of_a_case_are_those_of_its_model_and_manifest(
    digits: LoadedManifest, tmp_path: Path
) -> None:
    model = digits.manifest.models[0]
    files = fetch_files(digits, model, tmp_path)
    assert {role: path.parent for role, path in files.model.items()} == {"graph": DIGITS}
    assert files.dataset == DIGITS / "digits_test.npz"


def test_local_files_are_brought_to_this_host_first(digits: LoadedManifest, tmp_path: Path) -> None:
    brought = []

    def bring(loaded: LoadedManifest, artifact: Artifact) -> Artifact:
        brought.append(Path(artifact.source).name)
        return artifact

    model = digits.manifest.models[0]
    fetch_files(digits, model, tmp_path, bring=bring)
    assert "digits_test.npz" in brought


def test_only_the_arrivals_of_a_case_are_fetched(tmp_path: Path) -> None:
    manifest = copy_digits(tmp_path / "manifests")
    replays = "[{replay: {arrivals: a.csv}}, {replay: {arrivals: b.csv}}]"
    manifest.write_text(manifest.read_text().replace("[single_stream, offline]", replays))
    (manifest.parent / "a.csv").write_text("0\n")
    loaded = load(manifest)
    (model,) = (model for model in loaded.manifest.models if model.name == "onnxruntime")
    assert fetch_files(loaded, model, tmp_path).arrivals is None
    files = fetch_files(loaded, model, tmp_path, arrivals="a.csv")
    assert files.arrivals == manifest.parent / "a.csv"
    with pytest.raises(ArtifactError, match=r"digits\.yaml:\d+: .*b\.csv does not exist"):
        fetch_files(loaded, model, tmp_path, arrivals="b.csv")


def test_the_local_files_of_a_manifest_are_checked_without_a_run(digits: LoadedManifest) -> None:
    assert list(check_local(digits)) == []


def test_the_cache_is_the_users_unless_the_environment_names_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MLMS_CACHE", raising=False)
    assert default_cache().name == "pytest-mlms"
    monkeypatch.setenv("MLMS_CACHE", "/elsewhere")
    assert default_cache() == Path("/elsewhere")
    monkeypatch.setenv("HOME", "/of/joe")
    monkeypatch.setenv("MLMS_CACHE", "~/cache")  # as in the YAML of a CI service
    assert default_cache() == Path("/of/joe/cache")
