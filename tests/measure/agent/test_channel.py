"""The pipes of agents, and their logs of limited size."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pytest

from pytest_mlms.core.errors import AgentError, MlmsError, Unavailable
from pytest_mlms.measure.agent.channel import Channel, LogFile, temporary_log

ECHO = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer, 16)"
SILENCE = "import time; time.sleep(600)"
NOTHING = "pass"


@contextmanager
def channel_to(code: str) -> Iterator[Channel]:
    command = [sys.executable, "-u", "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    requests = cast(IO[bytes], process.stdin)
    replies = cast(IO[bytes], process.stdout)
    channel = Channel(process, requests, replies)
    channel.deadline = time.monotonic() + 300
    try:
        yield channel
    finally:
        process.kill()
        process.wait()
        channel.close()


def test_lines_and_bytes_come_back_in_their_order() -> None:
    with channel_to(ECHO) as channel:
        channel.write([b"first\nsecond\n", memoryview(b"0123456789")])
        channel.write([b"x" * 100])
        assert channel.readline(1000) == b"first\n"
        assert channel.readline(1000) == b"second\n"
        received = bytearray(10)
        count = 0
        while count < 10:
            count += channel.readinto(memoryview(received)[count:])
        assert bytes(received) == b"0123456789"


def test_a_line_that_is_too_long_is_returned_without_its_end() -> None:
    with channel_to(ECHO) as channel:
        channel.write([b"x" * 64])
        assert len(channel.readline(16)) >= 16


def test_more_than_a_pipe_holds_is_written_while_it_is_read() -> None:
    sink = "import sys; print(len(sys.stdin.buffer.read(1 << 23)))"
    with channel_to(sink) as channel:
        channel.write([bytes(1 << 23)])
        assert channel.readline(100) == b"8388608\n"


def test_the_deadline_ends_the_wait_for_a_program_that_is_silent() -> None:
    with channel_to(SILENCE) as channel:
        channel.deadline = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.readline(100)


def test_the_end_of_a_program_ends_the_wait() -> None:
    with channel_to(NOTHING) as channel, pytest.raises(EOFError):
        channel.readline(100)


def test_a_channel_knows_that_it_is_closed() -> None:
    with channel_to(SILENCE) as channel:
        assert not channel.closed
    assert channel.closed


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


def test_a_temporary_log_is_kept_only_where_an_agent_fails_or_an_error_names_it() -> None:
    with temporary_log("mlms-test-") as done:
        assert done.parent.is_dir()
    with pytest.raises(MlmsError), temporary_log("mlms-test-") as mistaken:
        raise MlmsError("a mistake of the user's")
    with pytest.raises(AgentError), temporary_log("mlms-test-") as failed:
        raise AgentError("the agent died")
    with pytest.raises(Unavailable), temporary_log("mlms-test-") as named:
        raise Unavailable(f"no module (log: {named})")
    assert not done.parent.exists()
    assert not mistaken.parent.exists()
    failed.parent.rmdir()
    named.parent.rmdir()
