"""Files by huggingface_hub from a local hub, and by fsspec from a store that is a local folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, DownloadLimits, Place
from pytest_mlms.provide.artifacts.fetch import fetch
from tests.support.fileserver import DATA, DIGEST
from tests.support.hub import Hub, serving_hub

LIMITS = DownloadLimits()
TOKEN = "hf_S3cretS3cretS3cret"

S3FS = """
import os, sys, time
__version__ = "2026.9.0"
from fsspec.implementations.local import LocalFileSystem

class S3FileSystem(LocalFileSystem):
    protocol = ("s3",)

    @classmethod
    def _strip_protocol(cls, path):
        return os.path.join(os.environ["STORE"], path.removeprefix("s3://"))

    def open(self, path, *arguments, **keywords):
        if "denied" in path:
            raise PermissionError("no access with " + os.environ["AWS_SECRET_ACCESS_KEY"])
        if "quoting" in path:
            raise OSError("bad answer: " + "x" * (1 << 20))
        if "slow" in path:
            time.sleep(60)
        if "chatty" in path:
            sys.stderr.write("a warning of a library\\n" * 100_000)
        return super().open(path, *arguments, **keywords)
"""


def artifact(source: str, digest: str = DIGEST) -> Artifact:
    return Artifact(source, digest, Place(Path("m.yaml"), 12))


def error_of(source: str, cache: Path, limits: DownloadLimits = LIMITS) -> str:
    with pytest.raises(ArtifactError) as raised:
        fetch(artifact(source), cache, limits=limits)
    text = str(raised.value)
    beginning = f"m.yaml:12: {source}: "
    assert text.startswith(beginning)
    return text.removeprefix(beginning)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serving_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.files = {"onnx/model.onnx": DATA, "README.md": b"text"}
        yield hub


def test_a_file_of_a_hub_is_fetched_with_the_token_and_again_from_its_cache(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = "hf:org/repo@refs%2Fpr%2F1/onnx/model.onnx"
    assert fetch(artifact(source), tmp_path / "a").read_bytes() == DATA
    assert f"Bearer {TOKEN}" in hub.users
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch(artifact(source), tmp_path / "b").read_bytes() == DATA


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf:org/gated@main/x", "org/gated is gated: accept its terms on its page, and set HF_TOK"),
        ("hf:org/private@main/x", "no org/private, or it needs a token; correct the name, or set"),
        ("hf:org/repo@v9/onnx/model.onnx", "org/repo has no revision 'v9'; write a commit"),
        ("hf:org/repo@main/model.onnx", "no file 'model.onnx'; did you mean onnx/model.onnx?"),
    ],
)
def test_what_a_hub_refuses_is_said_without_the_token(
    hub: Hub, tmp_path: Path, source: str, message: str
) -> None:
    text = error_of(source, tmp_path)
    assert message in text
    assert TOKEN not in text


def test_a_file_of_a_hub_that_is_too_large_is_not_fetched(hub: Hub, tmp_path: Path) -> None:
    limits = DownloadLimits(size=1000)
    text = error_of("hf:org/repo@main/onnx/model.onnx", tmp_path, limits)
    assert text == f"it has {len(DATA):,} bytes; --mlms-download-size allows more"
    assert not list((tmp_path / "hf").rglob("*.onnx"))


def test_a_hub_that_sends_more_than_it_said_is_stopped(hub: Hub, tmp_path: Path) -> None:
    hub.said, hub.files["large"] = 100, bytes(8 << 20)
    text = error_of("hf:org/repo@main/large", tmp_path, DownloadLimits(size=3 << 20))
    assert text == "the server sends more than the limit; --mlms-download-size allows more"
    assert all(path.stat().st_size <= 3 << 20 for path in (tmp_path / "hf").rglob("*"))


def test_a_hub_that_is_not_there_is_an_error(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = error_of("hf:org/repo@main/onnx/model.onnx", tmp_path)
    assert text == "the hub can't be reached, and its cache has no such file; check the network"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of the buckets of s3://, by a library of that name."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "s3fs.py").write_text(S3FS)
    monkeypatch.setenv("PYTHONPATH", str(libraries))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret/s3cret")
    bucket = tmp_path / "store" / "bucket"
    bucket.mkdir(parents=True)
    monkeypatch.setenv("STORE", str(bucket.parent))
    (bucket / "data.bin").write_bytes(DATA)
    return bucket


def test_an_object_is_fetched_and_a_partial_file_is_continued(store: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    partial = cache / "artifacts" / DIGEST[:2] / DIGEST / "partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(DATA[:1000])
    (store / "data.bin").write_bytes(bytes(1000) + DATA[1000:])  # what is there is not read again
    assert fetch(artifact("s3://bucket/data.bin"), cache).read_bytes() == DATA


def test_a_library_that_writes_much_about_itself_does_not_wait(store: Path, tmp_path: Path) -> None:
    (store / "chatty.onnx").write_bytes(DATA)
    limits = DownloadLimits(seconds=20)
    path = fetch(artifact("s3://bucket/chatty.onnx"), tmp_path / "cache", limits=limits)
    assert path.read_bytes() == DATA


def test_a_partial_file_of_another_version_is_replaced(store: Path, tmp_path: Path) -> None:
    partial = tmp_path / "artifacts" / DIGEST[:2] / DIGEST / "partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"stale")
    assert fetch(artifact("s3://bucket/data.bin"), tmp_path).read_bytes() == DATA


def test_a_store_that_refuses_is_an_error_without_the_secret(store: Path, tmp_path: Path) -> None:
    (store / "denied").write_bytes(DATA)
    text = error_of("s3://bucket/denied", tmp_path)
    expected = "PermissionError: no access with ***; give s3fs credentials, as its documentation"
    assert expected in text
    text = error_of("s3://bucket/none", tmp_path)
    assert text == "there is no such file; correct the address"


def test_an_error_that_quotes_an_endless_answer_is_told(store: Path, tmp_path: Path) -> None:
    (store / "quoting").write_bytes(DATA)
    text = error_of("s3://bucket/quoting", tmp_path)
    assert text.startswith("OSError: bad answer: xxx")
    assert len(text) < 1000


def test_an_object_that_is_too_large_or_too_slow_is_an_error(store: Path, tmp_path: Path) -> None:
    text = error_of("s3://bucket/data.bin", tmp_path, DownloadLimits(size=1000))
    assert "--mlms-download-size allows more" in text
    (store / "slow").write_bytes(DATA)
    text = error_of("s3://bucket/slow", tmp_path, DownloadLimits(seconds=0.5))
    assert "the time for the download is over; run again to go on" in text


@pytest.mark.parametrize(
    ("source", "library", "line"),
    [
        ("gs://bucket/x", "fsspec", "pip install 'fsspec>=2026.6' gcsfs"),
        ("az://container/x", "", "pip install 'fsspec>=2026.6' adlfs"),
        ("hf:org/repo@main/x", "huggingface_hub", "pip install 'huggingface_hub>=0.30'"),
    ],
)
def test_a_library_that_is_not_installed_is_said_with_the_line_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, library: str, line: str
) -> None:
    for name in (library, "gcsfs", "adlfs"):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert error_of(source, tmp_path / "cache").endswith(line)


def test_an_md5_is_accepted_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    md5 = hashlib.md5(DATA).hexdigest()
    with pytest.warns(UserWarning, match=f"write 'sha256: {DIGEST}' instead") as caught:
        fetch(artifact(str(path), f"md5:{md5}"), tmp_path)
    assert (caught[0].filename, caught[0].lineno) == ("m.yaml", 12)
    with pytest.raises(ArtifactError, match="has md5 "):
        fetch(artifact(str(path), f"md5:{'0' * 32}"), tmp_path)
