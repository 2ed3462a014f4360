"""Tests of the pipes to an agent, with a program that only copies or sleeps."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

import pytest

from pytest_mlms.measure.agent.channel import Channel

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
