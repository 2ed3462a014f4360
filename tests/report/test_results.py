"""The results file under a full disk, which a tiny file system plays where one can be mounted."""

from __future__ import annotations

import json
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.recorder import MlmsArtifactLost, Recorder
from pytest_mlms.records import Place
from pytest_mlms.report.results import ResultsFile

PLACE = Place(Path("a.yaml"), 7)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"can't mount a small file system here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_what_a_full_disk_refuses_is_held_and_written_when_there_is_room(small_disk: Path) -> None:
    file = ResultsFile(small_disk / "run")
    file.append({"nodeid": "first"})
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(b"x" * (1 << 20))
    file.append({"nodeid": "second", "text": "y" * 20_000})
    assert "No space left on device" in file.error
    assert len(file.unwritten) == 1
    filler.unlink()
    file.append({"nodeid": "third"})
    file.finish(0)
    assert file.unwritten == []
    assert file.error == "", "a run that lost nothing has not failed"
    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert [line.get("nodeid") for line in lines] == [None, "first", "second", "third", None]


@pytest.mark.parametrize(("status", "wanted"), [(0, 1), (2, 2)])
def test_an_end_that_a_full_disk_refuses_has_the_status_that_this_comes_to(
    small_disk: Path, status: int, wanted: int
) -> None:
    file = ResultsFile(small_disk / "run")
    file.append({"nodeid": "first"})
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(b"x" * (1 << 20))
    file.append({"nodeid": "second", "text": "y" * 20_000})
    file.finish(status)
    second, end = map(json.loads, file.unwritten)
    assert (second["nodeid"], end["type"], end["exit_status"]) == ("second", "end", wanted)


def write_too_much(path: Path) -> None:
    path.write_bytes(b"x" * (1 << 20))


def test_an_artifact_that_does_not_fit_is_named_and_leaves_no_half(small_disk: Path) -> None:
    recorder = Recorder("a.yaml::test[x]", small_disk, PLACE)
    with pytest.warns(
        MlmsArtifactLost, match=r"big\.bin could not be written: No space left .*; make room"
    ) as warned:
        recorder.keep("big.bin", write_too_much)
    recorder.keep("big-2.bin", write_too_much)
    assert [(warning.filename, warning.lineno) for warning in warned] == [("a.yaml", 7)]
    recorder.keep("small.bin", lambda path: path.write_bytes(b"x") and None)
    facts = recorder.as_dict()
    assert list(facts["artifacts"]) == ["small.bin"]
    assert list(facts["artifacts_lost"]) == ["big.bin", "big-2.bin"]
    assert "No space left" in facts["artifacts_lost"]["big.bin"]
    assert not (recorder.folder / "big.bin").exists()


def test_an_artifact_that_is_written_again_is_kept_or_lost_as_the_last_time(
    small_disk: Path,
) -> None:
    recorder = Recorder("a.yaml::test[x]", small_disk, PLACE)
    recorder.keep("trace.bin", lambda path: path.write_bytes(b"x") and None)
    with pytest.warns(MlmsArtifactLost):
        recorder.keep("trace.bin", write_too_much)
    assert recorder.as_dict()["artifacts"] == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder.keep("trace.bin", write_too_much)
    recorder.keep("trace.bin", lambda path: path.write_bytes(b"x") and None)
    facts = recorder.as_dict()
    assert (list(facts["artifacts"]), facts["artifacts_lost"]) == (["trace.bin"], {})


def test_items_of_like_names_have_folders_of_their_own(tmp_path: Path) -> None:
    names = ["a.yaml::test[x/y]", "a.yaml::test[x-y]", "a.yaml::test[" + "z" * 300 + "]"]
    folders = {Recorder(name, tmp_path, PLACE).folder.name for name in names}
    assert len(folders) == 3
    assert all(len(name) < 120 for name in folders)


@pytest.mark.parametrize("own", [True, False])
def test_results_are_kept_out_of_git_in_a_folder_that_has_nothing_else(
    tmp_path: Path, own: bool
) -> None:
    if not own:
        (tmp_path / "README.md").write_text("somebody has this in git")
    run = tmp_path / "20260102-030405-abcdef"
    (run / "items").mkdir(parents=True)  # artifacts come before the first line
    ResultsFile(run).append({"nodeid": "first"})
    assert (tmp_path / "latest").resolve() == run
    assert (tmp_path / ".gitignore").exists() is own
