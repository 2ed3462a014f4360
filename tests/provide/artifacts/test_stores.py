"""Files of gs:, az: and s3: by the real libraries, from stores on loopback that are hostile."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, DownloadLimits, Place
from pytest_mlms.provide.artifacts.fetch import fetch
from tests.support.fileserver import DATA, DIGEST
from tests.support.stores import Body, Handler, Store, send, serving_store

pytestmark = pytest.mark.slow

LIMITS = DownloadLimits(size=4 << 20, seconds=10.0)
LIBRARIES = {"gs": "gcsfs", "az": "adlfs", "s3": "s3fs"}


@pytest.fixture(params=LIBRARIES)
def source(request: pytest.FixtureRequest) -> str:
    """Return the address of a file in a store."""
    pytest.importorskip(LIBRARIES[request.param])
    return f"{request.param}://bucket/data.bin"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving_store(DATA) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


def error_of(source: str, cache: Path, limits: DownloadLimits = LIMITS) -> str:
    """Return the error of a file that can't be fetched, of which nothing is taken for the file."""
    with pytest.raises(ArtifactError) as raised:
        fetch(Artifact(source, DIGEST, Place(Path("m.yaml"), 12)), cache, limits=limits)
    text = str(raised.value)
    assert text.startswith(f"m.yaml:12: {source}: ")
    assert text.isprintable()
    assert len(text) < 1000
    found = [path for path in cache.rglob("*") if path.is_file()]
    assert {path.name for path in found if path.suffix != ".lock"} <= {"partial"}
    assert all(path.stat().st_size <= limits.size for path in found)
    return text


def test_a_file_of_a_store_is_fetched(source: str, store: Store, tmp_path: Path) -> None:
    artifact = Artifact(source, DIGEST, Place(Path("m.yaml"), 12))
    assert fetch(artifact, tmp_path, limits=LIMITS).read_bytes() == DATA
    assert store.fetched


def test_what_a_store_says_is_too_large_is_not_fetched(
    source: str, store: Store, tmp_path: Path
) -> None:
    store.said = 1 << 40
    text = error_of(source, tmp_path)
    assert "--mlms-download-size allows more" in text
    assert not store.fetched


def endless(handler: Handler, data: bytes) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 20))


def slow(handler: Handler, data: bytes) -> None:
    handler.send(200, b"", length=str(len(data)))
    for _ in range(1000):
        handler.wfile.write(b"x")
        time.sleep(0.1)


def short(handler: Handler, data: bytes) -> None:
    handler.send(200, data[:100], length=str(len(data)))
    handler.close_connection = True


def other(handler: Handler, data: bytes) -> None:
    handler.send(206, bytes(len(data)), {"Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"})


def to_file(handler: Handler, data: bytes) -> None:
    handler.send(302, b"", {"Location": "file:///etc/passwd"})


def to_secrets(handler: Handler, data: bytes) -> None:
    handler.send(302, b"", {"Location": "http://169.254.169.254/latest/meta-data"})


def in_circles(handler: Handler, data: bytes) -> None:
    handler.send(302, b"", {"Location": handler.path})


def failing(handler: Handler, data: bytes) -> None:
    handler.send(500, b"\x1b[2J" * 100_000)


@pytest.mark.parametrize(
    "body",
    [slow, short, other, to_file, to_secrets, in_circles, failing],
    ids=lambda body: body.__name__,
)
def test_a_hostile_store_is_given_up(source: str, store: Store, tmp_path: Path, body: Body) -> None:
    """In bounded time and memory, and nothing is taken for the file."""
    store.body = body
    began = time.monotonic()
    error_of(source, tmp_path)
    assert time.monotonic() - began < 10 * LIMITS.seconds


def test_an_endless_answer_takes_bounded_memory(source: str, store: Store, tmp_path: Path) -> None:
    store.body = endless
    error_of(source, tmp_path)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1 << 21  # KiB


@pytest.mark.parametrize("name", ["../../outside", "a/../../outside", "%2e%2e/outside"])
def test_a_name_leads_nowhere_else(source: str, store: Store, tmp_path: Path, name: str) -> None:
    cache = tmp_path / "a" / "cache"
    artifact = Artifact(source.replace("data.bin", name), DIGEST, Place(Path("m.yaml"), 12))
    with contextlib.suppress(ArtifactError):
        fetch(artifact, cache, limits=LIMITS)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["cache"]


def test_a_store_leads_nowhere_else(source: str, store: Store, tmp_path: Path) -> None:
    """As into this machine, to an address from where clouds give out credentials."""
    asked = []

    def lead(handler: Handler, data: bytes) -> None:
        asked.append(handler.path)
        if handler.path == "/inside":
            send(handler, data)
        else:
            handler.send(302, b"", {"Location": f"{store.url}/inside"})

    store.body = lead
    error_of(source, tmp_path)
    assert asked
    assert "/inside" not in asked
