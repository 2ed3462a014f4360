"""The probe ``bpftrace``: calls of native functions, by bpftrace's user probes; 18 us a call.

It works where bpftrace is installed and permitted. The option ``functions`` says which calls:
``LIBRARY:FUNCTION``, where LIBRARY is a pattern of the file name of a library that this process
has loaded, such as ``libonnxruntime*``, and FUNCTION is a name that it exports.
"""

import fnmatch
import os
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Tuple

from ..probe import Probe, ProbeUnavailable, Span

_READY = 30.0  # seconds for bpftrace to compile and attach
_DRAINED = 3.0  # seconds for bpftrace to write what has happened
_POLL = 0.02  # seconds between two looks at what bpftrace wrote
_ENDED = 10  # seconds for bpftrace to end by itself
_SCRIPT = """
uprobe:%(path)s:%(name)s /pid == %(pid)d/ { printf("b %%d %%llu %(index)d\\n", tid, nsecs); }
uretprobe:%(path)s:%(name)s /pid == %(pid)d/ { printf("e %%d %%llu %(index)d\\n", tid, nsecs); }
"""
_MARK_SCRIPT = """
uprobe:%(path)s:%(name)s /pid == %(pid)d/ { printf("m %(name)s %%llu\\n", nsecs); }
"""
_CLOCK_BOOTTIME = 7  # time.CLOCK_BOOTTIME is younger than Python 3.6


class _Function(NamedTuple):
    """A native function: the path of its library, and its name there."""

    path: str
    name: str


class _Mark(NamedTuple):
    """A call of libc that shows that bpftrace is attached: its name, and its time in ns."""

    name: str
    at: int


class Bpftrace(Probe):
    """Level ``library``: one span for each call."""

    name = "bpftrace"
    levels = ("library",)
    _process: Any = None

    def start(self):
        """Attach to the functions.

        Raises ProbeUnavailable where none is found or bpftrace is not permitted.
        """
        command = shutil.which("bpftrace")
        if command is None:
            raise ProbeUnavailable(
                "bpftrace isn't installed; install it with the system's package manager"
            )
        self._functions = self._find_functions(self.options.get("functions", ()))
        if not self._functions:
            raise ProbeUnavailable("; ".join(self.missing.values()) or "no functions were named")
        script = _script(_libc(), self._functions)
        self._folder = tempfile.mkdtemp(prefix="mlms-bpftrace-")
        self._output = os.path.join(self._folder, "out")
        self._errors = os.path.join(self._folder, "err")
        with open(self._output, "wb") as output, open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [command, "-B", "line", "-p", str(os.getpid()), "-e", script],
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
            )
        self._wait_until_attached()

    def stop(self):
        """End bpftrace, and make spans of its output."""
        process = self._process
        if process is None:
            return
        self._process = None
        status = process.poll()
        if status is None:
            self._drain()
            _interrupt(process)
        else:
            self.fault = "bpftrace ended by itself, with status %d" % status
        names = [function.name for function in self._functions]
        self.spans = list(_spans(_read_fields(self._output), names, self._offset))
        shutil.rmtree(self._folder, ignore_errors=True)

    def _find_functions(self, entries):
        """Return the functions whose library is loaded; note the other entries as missing."""
        loaded = _libraries()
        found = []
        for entry in entries:
            pattern, _, name = entry.partition(":")
            paths = [path for path in loaded if _matches(path, pattern)]
            if not paths or not name:
                reason = "no loaded library is %s; write LIBRARY:FUNCTION" % (pattern or "?")
                self.missing[entry] = reason
            else:
                found += [_Function(path, name) for path in paths]
        return found

    def _wait_until_attached(self):
        """Make marked calls until bpftrace sees the first and the last function of its script."""
        deadline = time.monotonic() + _READY
        while time.monotonic() < deadline:
            marks = self._make_marks()
            if {mark.name for mark in marks} == {"getuid", "getgid"}:
                self._offset = _clock_offset(marks[-1].at)
                return
            if self._process.poll() is not None:
                break
            time.sleep(_POLL)
        with open(self._errors) as file:
            errors = file.read().strip().splitlines()
        reason = errors[-1] if errors else "it wasn't ready in %g s" % _READY
        self._process.kill()
        self._process.wait()
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)
        raise ProbeUnavailable("bpftrace: %s" % reason)

    def _drain(self):
        """Wait until bpftrace has written what happened so far.

        What it has not written when it ends is lost.
        """
        last = time.perf_counter() * 1e9
        deadline = time.monotonic() + _DRAINED
        while time.monotonic() < deadline:
            if any(mark.at - self._offset > last for mark in self._make_marks()):
                break
            time.sleep(_POLL)
        time.sleep(0.2)  # for what the buffers of the other cores hold

    def _make_marks(self):
        """Make the marked calls; return those that bpftrace has written so far."""
        os.getuid()
        os.getgid()
        marks = []
        for fields in _read_fields(self._output):
            if len(fields) == 3 and fields[0] == "m":
                marks.append(_Mark(fields[1], int(fields[2])))
        return marks


def _script(libc, functions):
    """Return bpftrace's program: the marked calls come first and last."""
    pid = os.getpid()
    parts = [_MARK_SCRIPT % {"path": libc, "name": "getuid", "pid": pid}]
    for index, function in enumerate(functions):
        fields = {"path": function.path, "name": function.name, "index": index, "pid": pid}
        parts.append(_SCRIPT % fields)
    parts.append(_MARK_SCRIPT % {"path": libc, "name": "getgid", "pid": pid})
    return "".join(parts)


def _libc():
    for path in _libraries():
        if os.path.basename(path).startswith(("libc.", "libc-")):
            return path
    raise ProbeUnavailable("this process has no libc.so, whose calls tell when bpftrace is ready")


def _libraries():
    """Return the files that this process has mapped to run, sorted."""
    found = set()
    with open("/proc/self/maps") as file:
        for line in file:
            fields = line.split(None, 5)
            if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
                found.add(fields[5].strip())
    return sorted(found)


def _matches(path, pattern):
    return fnmatch.fnmatchcase(os.path.basename(path), pattern)


def _read_fields(path):
    with open(path) as file:
        return [line.split() for line in file]


def _interrupt(process):
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_ENDED)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _clock_offset(reading):
    """Return how far bpftrace's clock is ahead of the monotonic one, in nanoseconds.

    It reads either the monotonic clock or the one that also counts the time asleep.
    """
    monotonic = time.clock_gettime(time.CLOCK_MONOTONIC)
    since_boot = time.clock_gettime(_CLOCK_BOOTTIME)
    asleep = int((since_boot - monotonic) * 1e9)
    behind = int(monotonic * 1e9) - reading
    counts_sleep = abs(behind + asleep) < abs(behind)
    return asleep if counts_sleep else 0


def _spans(lines, names, offset):
    """Yield a span for each begin and its end; calls of a thread nest."""
    begun: Dict[Tuple[int, int], List[int]] = {}
    for fields in lines:
        if len(fields) != 4 or fields[0] not in ("b", "e"):
            continue
        thread = int(fields[1])
        at = int(fields[2]) - offset
        index = int(fields[3])
        starts = begun.setdefault((thread, index), [])
        if fields[0] == "b":
            starts.append(at)
        elif starts:
            yield Span("library", names[index], "", "", starts.pop(), at, thread)
