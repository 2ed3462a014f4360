"""``mlms lint --fix``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from tests.support.fileserver import DATA, DIGEST, serving
from tests.support.project import copy_digits


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The manifest of the current folder, with digests."""
    monkeypatch.chdir(tmp_path)
    made = copy_digits(tmp_path / "manifests")
    monkeypatch.chdir(made.parent)
    return made


def without_digests(manifest: Path) -> str:
    """Remove the digests of a manifest; return its text as it was."""
    whole = manifest.read_text()
    manifest.write_text(re.sub(r"\n +sha256: .*", "", whole))
    return whole


def test_missing_digests_are_written_and_nothing_else_changes(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = without_digests(manifest)
    manifest.chmod(0o640)
    assert main(["lint", "digits.yaml"]) == 1
    capsys.readouterr()
    assert main(["lint", "--fix", "digits.yaml"]) == 0
    assert manifest.read_text() == whole
    assert manifest.stat().st_mode & 0o777 == 0o640
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"digits.yaml:\d+: wrote the sha256 of digits_cnn.onnx \(\w{12}…\)", first)
    assert "digits_test.npz" in second


def test_digests_by_role_are_completed(manifest: Path) -> None:
    text = manifest.read_text()
    digest = re.findall("[0-9a-f]{64}", text)[0]
    old = f"    sha256: {digest}\n"
    with_weights = text.replace(old, f"    weights: labels.txt\n    sha256:\n      graph: {digest} # mine\n", 1)  # fmt: skip
    manifest.write_text(with_weights)
    main(["lint", "--fix", "digits.yaml"])
    fixed = manifest.read_text()
    assert f"    sha256:\n      graph: {digest} # mine\n      weights: " in fixed


def test_a_digest_of_a_changed_file_stays(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = manifest.read_text()
    (manifest.parent / "digits_cnn.onnx").write_bytes(b"changed")
    assert main(["lint", "--fix", "digits.yaml"]) == 1
    assert manifest.read_text() == before
    assert "digits_cnn.onnx has sha256" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("https://example.org/m.onnx", "https://example.org/m.onnx is not fetched; --fetch does"),
        ("nowhere.onnx", "nowhere.onnx does not exist; correct the path"),
        (".", "is a folder, not a file; correct the path"),
    ],
)
def test_what_is_not_here_is_said(
    manifest: Path, capsys: pytest.CaptureFixture[str], graph: str, message: str
) -> None:
    without_digests(manifest)
    manifest.write_text(manifest.read_text().replace("digits_cnn.onnx", graph))
    assert main(["lint", "--fix", "digits.yaml"]) == 1
    output = capsys.readouterr().out
    assert message in output
    assert "wrote the sha256 of digits_test.npz" in output


def test_a_manifest_behind_a_link_stays_a_link(manifest: Path) -> None:
    whole = without_digests(manifest)
    link = manifest.with_name("link.yaml")
    link.symlink_to(manifest)
    assert main(["lint", "--fix", "link.yaml"]) == 0
    assert link.is_symlink()
    assert manifest.read_text() == whole


def test_a_file_that_is_no_yaml_is_left_as_it_is(manifest: Path) -> None:
    manifest.write_text("models: [")
    assert main(["lint", "--fix", "digits.yaml"]) == 1
    assert manifest.read_text() == "models: ["


def test_remote_files_are_fetched_where_that_is_asked_for(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = manifest.parent / "cache"
    with serving() as server:
        url = server.url()
        text = manifest.read_text().replace("digits_cnn.onnx", url)
        manifest.write_text(re.sub(r"\n +sha256: .*", "", text, count=1))
        assert main(["lint", "--fix", "digits.yaml"]) == 1
        assert f"{url} is not fetched; --fetch does that" in capsys.readouterr().out
        main(["lint", "--fix", "--fetch", f"--mlms-cache={cache}", "digits.yaml"])
        assert f"sha256: {DIGEST}\n" in manifest.read_text()
        output, errors = capsys.readouterr()
        assert f"wrote the sha256 of {url} ({DIGEST[:12]}…)" in output
        assert f"fetching {url}" in errors
        assert len(server.asked) == 1
    (kept,) = (cache / "artifacts" / DIGEST[:2] / DIGEST).iterdir()
    assert kept.read_bytes() == DATA


def test_a_server_that_has_no_such_file_is_said(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = without_digests(manifest)
    with serving() as server:
        url = server.url("/missing")
        manifest.write_text(manifest.read_text().replace("digits_cnn.onnx", url))
        main(["lint", "--fix", "--fetch", f"--mlms-cache={manifest.parent}/c", "digits.yaml"])
    assert f"{url}: " in capsys.readouterr().out
    assert manifest.read_text().count("sha256") == whole.count("sha256") - 1


def test_a_digest_by_md5_stays(manifest: Path) -> None:
    text = re.sub(r"sha256: [0-9a-f]{64}", f"sha256: md5:{'0' * 32}", manifest.read_text())
    manifest.write_text(text)
    main(["lint", "--fix", "digits.yaml"])
    assert manifest.read_text() == text
