"""Files of packages, from indexes on a local server, folders, and the real index."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, DownloadLimits, Place
from pytest_mlms.manifest.sources import split_source
from pytest_mlms.provide.artifacts import packages
from pytest_mlms.provide.artifacts.fetch import fetch, fetch_unpinned
from pytest_mlms.provide.artifacts.package_index import PipSettings, _parsed, pip_settings
from pytest_mlms.provide.artifacts.transfer import DownloadError
from tests.support.archives import write_zip
from tests.support.fileserver import FileServer
from tests.support.hostile_server import Answer, answering, forever, once
from tests.support.packages import Index, sdist_of, wheel_of

MODEL = b"the model" * 1000
DIGEST = hashlib.sha256(MODEL).hexdigest()
WHEEL = {"mymodels/data/model.onnx": MODEL, "mymodels/__init__.py": b"", "mymodels/a.txt": b"a"}
NAME = "my_models-1.0-py3-none-any.whl"
SOURCE = "pypi:My-Models==1.0#mymodels/data/model.onnx"


def artifact(source: str, digest: str = DIGEST) -> Artifact:
    location, member = split_source(source)
    return Artifact(location, digest, Place(Path("m.yaml"), 12), member)


def use(monkeypatch: pytest.MonkeyPatch, settings: PipSettings) -> None:
    monkeypatch.setattr(packages, "pip_settings", lambda: settings)


@pytest.fixture(params=["json", "html"])
def index(
    request: pytest.FixtureRequest, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> Index:
    index = Index(server, as_html=request.param == "html")
    use(monkeypatch, PipSettings((index.url,)))
    return index


def test_a_file_of_a_wheel_is_fetched_once_and_its_wheel_is_kept(
    index: Index, server: FileServer, tmp_path: Path
) -> None:
    index.add("my-models", NAME, wheel_of(WHEEL))
    path = fetch(artifact(SOURCE), tmp_path)
    assert path.read_bytes() == MODEL
    assert path.name == "model.onnx"
    other = hashlib.sha256(b"a").hexdigest()
    fetch(artifact("pypi:my.models==1#mymodels/a.txt", other), tmp_path)
    assert fetch(artifact(SOURCE), tmp_path) == path
    assert len(server.asked) == 2, "the page and the wheel"


def test_the_smallest_wheel_is_taken_unless_one_is_for_any_platform(
    index: Index, tmp_path: Path
) -> None:
    index.add("my-models", "my_models-1.0-cp39-cp39-win_amd64.whl", wheel_of(WHEEL))
    large = wheel_of({**WHEEL, "lib.so": bytes(10**5)})
    index.add("my-models", "my_models-1.0-cp39-cp39-manylinux_2_28_x86_64.whl", large)
    fetch(artifact(SOURCE), tmp_path / "a")
    index.add("my-models", NAME, wheel_of(WHEEL))
    fetch(artifact(SOURCE), tmp_path / "b")
    (kept,) = (tmp_path / "b").glob("packages/*/*.whl")
    assert kept.name == NAME


def test_a_source_distribution_is_read_and_never_run(index: Index, tmp_path: Path) -> None:
    setup = f"open({str(tmp_path / 'run')!r}, 'w')".encode()
    sdist = sdist_of("my-models-1.0", {"mymodels/data/model.onnx": MODEL, "setup.py": setup})
    index.add("my-models", "my-models-1.0.tar.gz", sdist)
    assert fetch(artifact(SOURCE), tmp_path / "cache").read_bytes() == MODEL
    assert not (tmp_path / "run").exists()


def test_what_the_wheel_lacks_is_taken_from_the_source_distribution(
    index: Index, tmp_path: Path
) -> None:
    index.add("my-models", NAME, wheel_of(WHEEL))
    index.add("my-models", "my-models-1.0.tar.gz", sdist_of("my-models-1.0", {"tests/x": MODEL}))
    assert fetch(artifact("pypi:my-models==1.0#tests/x"), tmp_path).read_bytes() == MODEL


def test_a_folder_of_a_package_has_the_digest_of_its_file(index: Index, tmp_path: Path) -> None:
    digest = index.add("my-models", NAME, wheel_of(WHEEL))
    folder = fetch(artifact("pypi:my-models==1.0#mymodels/data/", digest), tmp_path)
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]


def test_an_archive_of_a_package_has_members(index: Index, tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip", {"in/x": b"x"}).read_bytes()
    index.add("my-models", NAME, wheel_of({"mymodels/a.zip": archive}))
    digest = hashlib.sha256(archive).hexdigest()
    path = fetch(artifact("pypi:my-models==1.0#mymodels/a.zip#in/x", digest), tmp_path / "cache")
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pypi:none==1.0#x", r"no package 'none'; correct the name"),
        ("pypi:my-models==2.0#x", r"there is no version 2\.0; write one of 1\.0"),
        ("pypi:my-models==one#x", r"'one' is no version"),
        (
            "pypi:my-models==1.0#mymodels/model.onx",
            rf"no 'mymodels/model.onx' in {NAME}; did you mean mymodels/data/model.onnx",
        ),
        ("pypi:my-models==1.0#mymodels/data", "it is a folder there: end it with '/'"),
        ("pypi:my-models==1.0#mymodels/data/", f"none of its 1 files has sha256 {DIGEST}; {NAME}"),
        ("pypi:my-models==1.0#mymodels/a.txt", f"expected sha256:{DIGEST} but got ca978112"),
    ],
)
def test_what_a_package_does_not_have_is_an_error_with_what_it_has(
    index: Index, tmp_path: Path, source: str, message: str
) -> None:
    index.add("my-models", NAME, wheel_of(WHEEL))
    with pytest.raises(ArtifactError, match=message) as raised:
        fetch(artifact(source), tmp_path)
    assert str(raised.value).startswith("m.yaml:12: pypi:")


def test_a_yanked_version_is_fetched_with_a_warning_at_the_manifests_line(
    index: Index, tmp_path: Path
) -> None:
    index.add("my-models", NAME, wheel_of(WHEEL), yanked="wrong weights")
    with pytest.warns(UserWarning, match=r"was yanked by its authors \(wrong weights\)") as caught:
        fetch(artifact(SOURCE), tmp_path)
    assert (caught[0].filename, caught[0].lineno) == ("m.yaml", 12)


def test_the_token_of_an_index_is_sent_to_it_and_never_shown(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = Index(server)
    index.add("my-models", NAME, wheel_of(WHEEL))
    use(monkeypatch, PipSettings((index.url.replace("://", "://joe:s3cret@"),)))
    fetch(artifact(SOURCE), tmp_path)
    assert all(server.users), "for the page and for the wheel"
    server.statuses = [401]
    with pytest.raises(ArtifactError, match="the index answered 401 .*into pip's index-url") as e:
        fetch(artifact("pypi:other==1#x"), tmp_path)
    assert "s3cret" not in str(e.value)


def test_a_large_file_in_a_package_is_an_error(index: Index, tmp_path: Path) -> None:
    index.add("my-models", NAME, wheel_of({"mymodels/data/model.onnx": bytes(5000)}))
    with pytest.raises(ArtifactError, match="--mlms-download-size allows more"):
        fetch(artifact(SOURCE), tmp_path, limits=DownloadLimits(size=4000))


def test_a_damaged_package_is_an_error_and_a_damaged_copy_is_fetched_again(
    index: Index, tmp_path: Path
) -> None:
    index.add("my-models", NAME, wheel_of(WHEEL))
    kept = tmp_path / "packages" / "my-models-1" / NAME
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"damaged")
    assert fetch(artifact(SOURCE), tmp_path).read_bytes() == MODEL
    index.add("my-models", "my_models-2.0-py3-none-any.whl", b"PK no wheel")
    with pytest.raises(ArtifactError, match=r"can't be read: it is damaged: File is not a zip"):
        fetch(artifact("pypi:my-models==2.0#x"), tmp_path)


def test_no_answer_is_asked_for_in_a_compressed_form(
    index: Index, server: FileServer, tmp_path: Path
) -> None:
    """Bodies are taken as they are sent, of pages as of files."""
    index.add("my-models", NAME, wheel_of(WHEEL))
    fetch(artifact(SOURCE), tmp_path)
    assert server.encodings == ["identity", "identity"]


def test_a_page_that_is_no_index_is_an_error(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.files["/simple/my-models/"] = b'{"message": "hello"}'
    server.types["/simple/my-models/"] = "application/json"
    use(monkeypatch, PipSettings((server.url("/simple/"),)))
    with pytest.raises(ArtifactError, match="is not of the simple API: KeyError"):
        fetch(artifact(SOURCE), tmp_path)
    use(monkeypatch, PipSettings(("http://127.0.0.1:9/simple",)))
    with pytest.raises(ArtifactError, match="the index can't be reached: .*check the network"):
        fetch(artifact(SOURCE), tmp_path)


def test_folders_and_indexes_of_files_are_read_where_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    links = tmp_path / "wheels"
    links.mkdir()
    (links / NAME).write_bytes(wheel_of(WHEEL))
    (links / "README").write_text("no package")
    use(monkeypatch, PipSettings((), (str(links),)))
    assert fetch(artifact(SOURCE), tmp_path / "a").read_bytes() == MODEL
    page = tmp_path / "simple" / "my-models" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../wheels/{NAME}">')
    use(monkeypatch, PipSettings(((tmp_path / "simple").as_uri(),)))
    assert fetch(artifact(SOURCE), tmp_path / "b").read_bytes() == MODEL
    assert not list((tmp_path / "b").glob("packages/*/*.whl"))


def test_the_settings_are_those_of_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = http://a/simple\nfind-links = /w\n[download]\npre = 1")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://b/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    found = pip_settings.__wrapped__()
    assert (found.indexes, found.links) == (("http://a/simple", "http://b/simple"), ("/w",))


def test_an_interpreter_without_pip_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(packages, "pip_settings", pip_settings.__wrapped__)
    with pytest.raises(ArtifactError, match=r"No module named 'pip'\); run '.* -m ensurepip'"):
        fetch(artifact(SOURCE), tmp_path / "cache")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:magika==0.1.0 was yanked")
def test_a_file_comes_from_the_real_index(tmp_path: Path) -> None:
    digest = "70fe1969b529b465276f66034e7725cee9ddd152b1b4c66fc83a4bbc96979761"
    try:
        path = fetch(artifact("pypi:magika==0.1.0#magika/__init__.py", digest), tmp_path)
    except ArtifactError as error:
        if any(reason in str(error) for reason in ("can't be reached", "no package")):
            pytest.skip(str(error))
        raise
    assert path.name == "__init__.py"


HOSTILE = [
    ("a-1-1..%2F..%2Fx-py3-none-any.whl", "https://i.example/a.whl"),
    ("a-1-1%2Fx-py3-none-any.whl", "https://i.example/a.whl"),
    ("a-1-py3-none-any.whl", "file:///dev/zero"),
    ("a-1-py3-none-any.whl", "http://i.example/a-1-py3-none-any.whl"),
    ("a-1-py3-none-any.whl", "ftp://i.example/a-1-py3-none-any.whl"),
    ("a-1-py3-none-any.whl", "http://[/a-1-py3-none-any.whl"),
]


@pytest.mark.parametrize(("name", "url"), HOSTILE)
def test_a_page_leads_neither_out_of_the_cache_nor_to_files_of_this_machine(
    name: str, url: str
) -> None:
    page = "https://user:token@i.example/simple/a/"
    entry = {"filename": unquote(name), "url": url}
    assert list(_parsed(json.dumps({"files": [entry]}).encode(), "json", page)) == []
    link = f'<a href="{url.rpartition("/")[0]}/{name}">'.encode()
    assert list(_parsed(link, "text/html", page)) == []


@pytest.mark.parametrize("digest", [5, ["x"], "md5:x", "X" * 64, None])
def test_a_digest_that_is_none_is_unknown(digest: object) -> None:
    entry = {"filename": "a-1.tar.gz", "url": "a-1.tar.gz", "hashes": {"sha256": digest}}
    content = json.dumps({"files": [entry]}).encode()
    (file,) = _parsed(content, "json", "https://i.example/simple/a/")
    assert file.sha256 is None


def test_a_token_goes_to_the_scheme_and_host_of_its_page_only() -> None:
    page = "http://user:token@i.example/simple/a/"
    links = b"".join(
        b'<a href="%s/a-%d.tar.gz">' % (base, number)
        for number, base in enumerate([b"http://i.example", b"https://i.example", b"http://other"])
    )
    users = ["user:token" in file.url for file in _parsed(links, "text/html", page)]
    assert users == [True, False, False]


@given(st.text("<>!-[]/a hrefx='\"&#;?", max_size=60) | st.text(max_size=60), st.booleans())
@example("<![ ", False)
@example('<a href="x-%s.tar.gz">' % ("1" * 5000), False)
@example('{"files": [{"filename": "x-%s.tar.gz", "url": "a"}]}' % ("1" * 5000), True)
def test_any_page_has_files_or_is_an_error_that_says_so(page: str, is_json: bool) -> None:
    content, kind = page.encode(errors="replace"), "json" if is_json else "text/html"
    with contextlib.suppress(DownloadError):
        assert not list(_parsed(content, kind, "https://i.example/simple/x/"))


def test_a_wheel_for_many_platforms_takes_no_memory_for_their_combinations() -> None:
    tags = "-".join(".".join(f"{kind}{number}" for number in range(20)) for kind in "abc")
    page = f'<a href="x-1.0-{tags}.whl"><a href="x-1.0-1-py2.py3-none-Any.whl">'.encode()
    tracemalloc.start()
    try:
        files = list(_parsed(page, "text/html", "https://i.example/simple/x/"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert [file.is_for_any_platform for file in files] == [False, True]


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
LARGE_FILE = b'{"files": [{"filename": "a-1.tar.gz", "url": "a-1.tar.gz", "size": 1e999}]}'


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (forever(OK, bytes(1 << 20)), "sends more than 33,554,432 bytes; check the network"),
        (forever(OK, b"x"), "the time for the download is over|less than 64 KiB in"),
        (once(OK + b'{"files": [' + b"{}," * 1_000_001), "has more than 1,000,000 entries"),
        (once(OK + b"[" * 200_000), "is not of the simple API"),
        (once(OK + LARGE_FILE), "is not of the simple API"),
        (once(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"), "can't be reached"),
    ],
    ids=["endless", "a byte at a time", "a million entries", "deep", "infinite", "leads to a file"],
)
def test_a_hostile_index_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: Answer, message: str
) -> None:
    with answering(answer) as url:
        use(monkeypatch, PipSettings((url,)))
        with pytest.raises(ArtifactError, match=message):
            fetch(artifact(SOURCE), tmp_path, limits=DownloadLimits(seconds=5))


def test_a_wheel_of_another_digest_than_its_index_says_is_refused(
    index: Index, server: FileServer, tmp_path: Path
) -> None:
    index.add("my-models", NAME, wheel_of(WHEEL))
    server.files[f"/files/{NAME}"] = wheel_of({**WHEEL, "evil": b""})
    with pytest.raises(ArtifactError, match="does not match the known hash"):
        fetch(artifact(SOURCE), tmp_path)


@pytest.mark.parametrize(
    ("page", "url", "host"),
    [
        ("https://pypi.org/simple/a/", "https://files.pythonhosted.org/a-1.tar.gz", ""),
        (
            "https://download.pytorch.org/whl/cpu/torch/",
            "https://download-r2.pytorch.org/whl/cpu/torch-2.13.0.tar.gz",
            "",
        ),
        ("https://example.org/a/", "https://files.example.org:444/a-1.tar.gz", ""),
        ("https://www.example.org/a/", "https://b.example.org/a-1.tar.gz", "b.example.org"),
        ("https://a.co.uk/a/", "https://b.co.uk/a-1.tar.gz", "b.co.uk"),
        ("https://example.org/a/", "https://anexample.org/a-1.tar.gz", "anexample.org"),
        ("https://10.0.0.1/a/", "https://10.0.0.1/a-1.tar.gz", ""),
        ("file:///wheels/", "https://i.example/a-1.tar.gz", ""),
        ("https://pypi.org/simple/a/", "https://localhost/a-1.tar.gz", "localhost"),
        ("https://localhost/simple/a/", "https://127.0.0.1/a-1.tar.gz", "127.0.0.1"),
        ("https://10.0.0.1/a/", "https://10.9.0.1/a-1.tar.gz", "10.9.0.1"),
        ("https://[::1]/a/", "https://[::2]/a-1.tar.gz", "::2"),
        ("https://pypi.org/a/", "https://pypi.org.example/a-1.tar.gz", "pypi.org.example"),
    ],
)
def test_a_page_leads_to_its_host_those_below_it_and_those_of_pypi(
    page: str, url: str, host: str
) -> None:
    (file,) = _parsed(f'<a href="{url}">'.encode(), "text/html", page)
    assert file.foreign_host == host


def test_a_file_on_another_host_than_its_index_is_not_asked_for(
    index: Index, server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index.add("my-models", NAME, wheel_of(WHEEL))
    page = "/simple/my-models/"
    other = server.url("/files/").replace("127.0.0.1", "localhost")
    server.files[page] = server.files[page].replace(b"/files/", other.encode())
    with pytest.raises(ArtifactError, match="leads to another host, localhost; if you trust it"):
        fetch(artifact(SOURCE), tmp_path)
    assert len(server.asked) == 1, "the page"
    use(monkeypatch, PipSettings((index.url,), (other,)))
    assert fetch(artifact(SOURCE), tmp_path).read_bytes() == MODEL, "pip's settings name it"


def test_without_a_digest_indexes_that_differ_in_a_version_are_an_error(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours, public = Index(server, "/ours"), Index(server, "/simple")
    wheel = wheel_of(WHEEL)
    ours.add("my-models", NAME, wheel)
    use(monkeypatch, PipSettings((public.url, ours.url)))
    unpinned = artifact(SOURCE, "")
    assert fetch_unpinned(unpinned, tmp_path / "a") == DIGEST, "one index alone has it"
    public.add("my-models", NAME, wheel)
    assert fetch_unpinned(unpinned, tmp_path / "b") == DIGEST, "they have the same"
    public.add("my-models", "my_models-1.0-py2.py3-none-any.whl", wheel_of({**WHEEL, "evil": b""}))
    with pytest.raises(ArtifactError, match=r"simple/my-models/ and .*ours/my-models/ differ in"):
        fetch_unpinned(unpinned, tmp_path / "c")
    assert fetch(artifact(SOURCE), tmp_path / "d").read_bytes() == MODEL
