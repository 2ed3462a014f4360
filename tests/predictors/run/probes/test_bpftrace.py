"""The probe ``bpftrace``: calls of native functions."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import pytest
from mlms_predictors._run.probe import ProbeUnavailable
from mlms_predictors._run.probes import bpftrace, open_probe

from tests.support.probes import linux, refusal

OUTPUT = """\
c 0 1 0
b 7 100 0
b 7 110 1
e 8 115 1
e 7 120 1
e 7 150 0
torn
"""

# A bpftrace that says why it ends, as the real one does for users who may not use it.
REFUSING = """\
#!/bin/sh
echo ERROR: bpftrace currently only supports running as the root user. >&2
exit 1
"""


def test_a_bpftrace_that_is_not_installed_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "isn't installed" in refusal("bpftrace", level="library")


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bpftrace"
    program.write_text(REFUSING)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@linux
@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ([], "no functions were named"),
        (["libmagic-of-nobody*:spell"], "no loaded library is libmagic-of-nobody*"),
        (["libc[.-]*"], "write LIBRARY:FUNCTION"),
        (["libc[.-]*:getpid"], "only supports running as the root user"),
    ],
)
def test_functions_that_can_not_be_observed_are_the_reason(
    functions: list[str], reason: str
) -> None:
    assert reason in refusal("bpftrace", level="library", functions=functions)


def test_begins_and_ends_of_a_thread_become_nested_spans() -> None:
    lines = [line.split() for line in OUTPUT.splitlines()]
    spans = list(bpftrace._spans(lines, ["outer", "inner"], 10))
    found = [(span.name, span.thread, span.start, span.end) for span in spans]
    assert found == [("inner", 7, 100, 110), ("outer", 7, 90, 140)]


@linux
def test_a_clock_that_counts_the_time_asleep_is_recognized() -> None:
    monotonic = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    asleep = time.clock_gettime_ns(7) - monotonic
    assert bpftrace._clock_offset(monotonic) == 0 or asleep < 1_000_000
    assert bpftrace._clock_offset(monotonic + asleep) == pytest.approx(asleep, abs=10_000_000)


@linux
@pytest.mark.slow
def test_calls_of_a_native_function_are_seen() -> None:
    libc = ctypes.CDLL(None)
    options = {"functions": ["libc[.-]*:getppid"]}
    try:
        with open_probe("bpftrace", "cpu", "library", options) as probe:
            before = int(time.perf_counter() * 1e9)
            for _ in range(5):
                libc.getppid()
            after = int(time.perf_counter() * 1e9)
    except ProbeUnavailable as reason:
        pytest.skip(str(reason))
    assert [span.name for span in probe.spans] == ["getppid"] * 5
    for span in probe.spans:
        assert before <= span.start <= span.end <= after
