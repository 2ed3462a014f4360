"""Files of results on their way from a worker to the controller."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_mlms.distribute.messages import FileBegin, FileChunk, FileEnd
from pytest_mlms.distribute.remote import result_transfer
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver, ResultSender
from pytest_mlms.distribute.side_channel import SideChannel
from tests.distribute.fakes import channel_pair
from tests.support.small_disk import mount_small_disk


class Ends(NamedTuple):
    """Both ends of a transfer, each with its folder of the run."""

    receiver: ResultReceiver
    sender: ResultSender
    worker_channel: SideChannel
    run: Path
    away: Path


@pytest.fixture
def ends(tmp_path: Path) -> Ends:
    run = tmp_path / "run"
    away = tmp_path / "away"
    (away / "items").mkdir(parents=True)
    (away / "agents").mkdir()
    here, there = channel_pair()
    receiver = ResultReceiver(run, here, lambda path: True)
    sender = ResultSender(away, there)
    here.listen(receiver.handlers)
    there.listen(sender.handlers)
    return Ends(receiver, sender, there, run, away)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_an_artifact_arrives_whole_and_is_removed_there(ends: Ends) -> None:
    data = bytes(range(256)) * 5000  # several chunks
    (ends.away / "items" / "x").write_bytes(data)
    ends.sender.send({"artifacts": {"x": "items/x"}})
    assert (ends.run / "items" / "x").read_bytes() == data
    assert not (ends.away / "items" / "x").exists()
    assert ends.receiver.lost == {}


def test_a_log_is_sent_again_when_it_has_grown_and_is_removed_at_the_end(ends: Ends) -> None:
    log = ends.away / "agents" / "log"
    log.write_text("one\n")
    ends.sender.send({"logs": ["agents/log"]})
    assert log.exists()
    log.write_text("one\ntwo\n")
    ends.sender.send({"logs": ["agents/log"]})
    assert (ends.run / "agents" / "log").read_text() == "one\ntwo\n"
    log.write_text("one\ntwo\nat the end\n")
    ends.sender.finish()
    assert (ends.run / "agents" / "log").read_text() == "one\ntwo\nat the end\n"
    assert not log.exists()


def test_a_file_that_could_not_be_stored_is_kept_there_and_named(ends: Ends) -> None:
    ends.run.write_text("no folder")
    (ends.away / "items" / "x").write_text("measured")
    ends.sender.send({"artifacts": {"x": "items/x"}})
    assert "make room" in ends.receiver.lost["items/x"]
    assert (ends.away / "items" / "x").exists()


def test_a_file_that_can_not_be_read_there_is_named(ends: Ends) -> None:
    ends.sender.send({"artifacts": {"x": "items/missing"}})
    assert ends.receiver.lost == {
        "items/missing": "could not be read on its host: No such file or directory"
    }
    assert files_below(ends.run) == []


def test_a_damaged_file_is_lost_and_the_result_says_so(ends: Ends) -> None:
    (ends.away / "items" / "y").write_bytes(b"whole")
    ends.sender.send({"artifacts": {"y": "items/y"}})
    ends.worker_channel.send(FileBegin("items/a/x.npz"))
    ends.worker_channel.send(FileChunk(b"half"))
    ends.worker_channel.send(FileEnd("0" * 64, ""))
    ends.worker_channel.send(FileBegin("agents/log"))
    ends.worker_channel.send(FileEnd("", "could not be read on its host: no such file"))
    result: dict[str, Any] = {
        "artifacts": {"x.npz": "items/a/x.npz", "y": "items/y"},
        "artifacts_lost": {},
        "logs": ["agents/log"],
    }
    ends.receiver.note_lost_files(result)
    lost = {
        "x.npz": "it was damaged on its way",
        "agents/log": "could not be read on its host: no such file",
    }
    assert result == {"artifacts": {"y": "items/y"}, "artifacts_lost": lost, "logs": []}
    assert files_below(ends.run) == [ends.run / "items" / "y"]


def send_file(ends: Ends, path: str, *chunks: bytes) -> None:
    """Send a file as a worker does that a host made."""
    ends.worker_channel.send(FileBegin(path))
    for chunk in chunks:
        ends.worker_channel.send(FileChunk(chunk))
    ends.worker_channel.send(FileEnd(hashlib.sha256(b"".join(chunks)).hexdigest(), ""))


def test_a_worker_sends_so_much_and_what_is_beyond_it_is_named(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_transfer, "MOST", 3 << 19)
    half = bytes(1 << 19)
    for name in ("a", "a", "a"):  # it takes the place of the one before
        send_file(ends, f"items/{name}", half)
    send_file(ends, "items/b", half[:1000], half, half)
    send_file(ends, "items/c", b"small")
    assert {path.name for path in files_below(ends.run)} == {"a", "c"}
    assert list(ends.receiver.lost) == ["items/b"]
    for number in range(100):
        send_file(ends, f"items/empty/{number}")
    assert len(files_below(ends.run / "items" / "empty")) < 64


def test_the_files_of_hosts_leave_a_part_of_the_disk(ends: Ends) -> None:
    with mount_small_disk(ends.run, "8m"):
        send_file(ends, "items/a", *[bytes(1 << 16)] * 200)
        send_file(ends, "items/b", b"small")
        assert files_below(ends.run) == [ends.run / "items" / "b"]
        assert ends.receiver.lost == {"items/a": "No space left on device; make room"}
        number = 0
        while ends.receiver.lost.keys() == {"items/a"}:
            number += 1
            send_file(ends, f"items/{number}", bytes(1 << 16))
        (ends.run / "results.jsonl").write_bytes(bytes(100_000))


def test_a_worker_that_names_files_without_end_takes_bounded_memory(ends: Ends) -> None:
    for number in range(20_000):
        ends.worker_channel.send(FileBegin(f"results/{number}"))
    assert len(ends.receiver.lost) <= 10_000
    result: dict[str, Any] = {"artifacts": {"x": "items/19999"}}
    ends.receiver.note_lost_files(result)
    assert result == {"artifacts": {}, "artifacts_lost": {"x": "it did not arrive"}}


@pytest.mark.parametrize("path", ["items", "agents", "items/", "items//x", "items/\x1b[2J", "."])
def test_no_file_takes_the_place_of_a_folder_of_the_run(ends: Ends, path: str) -> None:
    (ends.away / "items" / "x").write_bytes(b"honest")
    for message in (
        FileBegin(path),
        FileChunk(b"x"),
        FileEnd(hashlib.sha256(b"x").hexdigest(), ""),
    ):
        ends.worker_channel.send(message)
    assert list(ends.receiver.lost) == [path]
    ends.sender.send({"artifacts": {"x": "items/x"}})
    assert (ends.run / "items" / "x").read_bytes() == b"honest"


def test_half_of_a_file_is_removed_when_its_worker_is_gone(ends: Ends) -> None:
    ends.worker_channel.send(FileBegin("items/x"))
    ends.worker_channel.send(FileChunk(b"half"))
    assert files_below(ends.run)
    ends.receiver.close()
    assert files_below(ends.run) == []


def test_a_file_that_another_one_interrupts_is_removed_and_named(ends: Ends) -> None:
    for message in (
        FileBegin("items/x"),
        FileChunk(b"half"),
        FileBegin("items/y"),
        FileEnd(hashlib.sha256(b"").hexdigest(), ""),
    ):
        ends.worker_channel.send(message)
    assert ends.receiver.lost == {"items/x": "another file came before its end"}
    assert files_below(ends.run) == [ends.run / "items" / "y"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../../outside",
        "items/../../b",
        "results.jsonl",
        "items/a\0b",
        "items/\ud800",
        ".",
        "",
    ],
)
def test_no_worker_writes_outside_of_the_items_of_the_run(ends: Ends, path: str) -> None:
    ends.worker_channel.send(FileBegin(path))
    ends.worker_channel.send(FileChunk(b"x"))
    ends.worker_channel.send(FileEnd(hashlib.sha256(b"x").hexdigest(), ""))
    assert ends.receiver.lost == {path: "its path leads out of the items of the run"}
    assert not ends.run.exists()
