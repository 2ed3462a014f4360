"""Tests of the log of an agent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_mlms.core.errors import AgentError, MlmsError
from pytest_mlms.measure.agent.log import LogFile, temporary_log


def drained(path: Path, chunks: Sequence[bytes]) -> LogFile:
    """Return the log of a process that wrote ``chunks`` and ended."""
    reading, writing = os.pipe()
    log = LogFile.drain(os.fdopen(reading, "rb"), path)
    with os.fdopen(writing, "wb", 0) as stream:
        for chunk in chunks:
            stream.write(chunk)
    log._thread.join()
    return log


def test_a_log_has_all_of_a_short_output(tmp_path: Path) -> None:
    log = drained(tmp_path / "logs" / "a.log", [b"one\n", b"two\n"])
    log.close()
    assert log.path.read_text() == "one\ntwo\n"
    assert log.tail(1) == ["two"]


def test_a_log_of_a_long_output_has_both_ends_and_tells_how_much_is_left_out(
    tmp_path: Path,
) -> None:
    lines = [b"%07d\n" % number for number in range(500_000)]
    log = drained(tmp_path / "a.log", lines)
    assert log.tail(1) == ["0499999"]
    log.close()
    text = log.path.read_text()
    assert text.startswith("0000000\n")
    assert text.endswith("0499999\n")
    assert len(text.encode()) < 2 << 20
    head, _, rest = text.partition("\n… ")
    left_out, _, tail = rest.partition(" bytes left out …\n")
    left_out_bytes = int(left_out.replace(",", ""))
    assert len(head) + left_out_bytes + len(tail) == 8 * 500_000


def test_a_log_that_can_not_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    log = drained(tmp_path / "occupied" / "a.log", [b"last words\n"])
    last_words, note = log.tail()
    assert last_words == "last words"
    assert "the log is not complete" in note
    log.close()
    assert not (tmp_path / "occupied" / "a.log").exists()


def test_a_process_that_prints_nothing_has_no_log(tmp_path: Path) -> None:
    log = drained(tmp_path / "a.log", [])
    log.close()
    assert log.tail() == []
    assert not log.path.exists()


def test_a_temporary_log_is_kept_only_where_an_agent_fails() -> None:
    with temporary_log("mlms-test-") as done:
        assert done.parent.is_dir()
    with pytest.raises(MlmsError), temporary_log("mlms-test-") as mistaken:
        raise MlmsError("a mistake of the user's")
    with pytest.raises(AgentError), temporary_log("mlms-test-") as failed:
        raise AgentError("the agent died")
    assert not done.parent.exists()
    assert not mistaken.parent.exists()
    failed.parent.rmdir()
