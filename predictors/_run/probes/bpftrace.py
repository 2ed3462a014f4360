"""Calls of native functions by bpftrace's user probes, where it is installed and permitted: 18 us a
call.

Which functions, the option says: ``LIBRARY:FUNCTION``, where LIBRARY is a pattern of the file name
of a library that this process has loaded, such as ``libonnxruntime*``, and FUNCTION one that it
exports.
"""

import fnmatch
import os
import shutil
import signal
import subprocess
import tempfile
import time

from . import Probe, ProbeUnavailable, Span

_READY = 30.0  # seconds for bpftrace to compile and attach
_SCRIPT = """
uprobe:%(path)s:%(name)s /pid == %(pid)d/ { printf("b %%d %%llu %(index)d\\n", tid, nsecs); }
uretprobe:%(path)s:%(name)s /pid == %(pid)d/ { printf("e %%d %%llu %(index)d\\n", tid, nsecs); }
"""


class Bpftrace(Probe):
    """Level ``library``: a span a call."""

    name = "bpftrace"
    levels = ("library",)
    _process = None

    def start(self):
        """Attach to the functions.

        Raises ProbeUnavailable where none can be found or bpftrace may not.
        """
        command = shutil.which("bpftrace")
        if command is None:
            raise ProbeUnavailable(
                "bpftrace isn't installed; install it with the system's package manager"
            )
        self._functions = list(self._found(self.options.get("functions", ())))
        if not self._functions:
            raise ProbeUnavailable("; ".join(self.missing.values()) or "no functions were named")
        libc = next(
            (
                path
                for path in _libraries()
                if os.path.basename(path).startswith(("libc.", "libc-"))
            ),
            None,
        )
        if libc is None:
            raise ProbeUnavailable(
                "this process has no libc.so, whose calls tell when bpftrace is ready"
            )
        self._folder = tempfile.mkdtemp(prefix="mlms-bpftrace-")
        self._output, self._errors = (os.path.join(self._folder, name) for name in ("out", "err"))
        script = "".join(
            [_mark(libc, "getuid")] + [self._lines(*one) for one in enumerate(self._functions)]
        )
        script += _mark(libc, "getgid")
        with open(self._output, "wb") as output, open(self._errors, "wb") as errors:
            arguments = [command, "-B", "line", "-p", str(os.getpid()), "-e", script]
            self._process = subprocess.Popen(
                arguments, stdout=output, stderr=errors, stdin=subprocess.DEVNULL
            )
        self._wait()

    def stop(self):
        """End bpftrace, and make spans of what it wrote."""
        process, self._process = self._process, None
        if process is None:
            return
        died = process.poll()
        if died is None:
            self._drain()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        else:
            self.fault = "bpftrace ended by itself, with status %d" % died
        with open(self._output) as file:
            lines = [line.split() for line in file]
        shutil.rmtree(self._folder, ignore_errors=True)
        self.spans = list(_spans(lines, [name for _, name in self._functions], self._offset))

    def _found(self, wanted):
        """Yield the path and name of each function whose library is loaded."""
        loaded = _libraries()
        for entry in wanted:
            pattern, _, name = entry.partition(":")
            paths = [
                path for path in loaded if fnmatch.fnmatchcase(os.path.basename(path), pattern)
            ]
            if not paths or not name:
                self.missing[entry] = "no loaded library is %s; write LIBRARY:FUNCTION" % (
                    pattern or "?"
                )
            for path in paths if name else []:
                yield path, name

    def _lines(self, index, function):
        return _SCRIPT % {
            "path": function[0],
            "name": function[1],
            "index": index,
            "pid": os.getpid(),
        }

    def _marked(self):
        """Make the marked calls; return those that bpftrace has written so far."""
        os.getuid()
        os.getgid()
        with open(self._output) as file:
            return [
                fields
                for fields in (line.split() for line in file)
                if len(fields) == 3 and fields[0] == "m"
            ]

    def _drain(self):
        """Wait until bpftrace, which forgets what it hasn't written when it ends, has written what
        happened so far.
        """
        last, deadline = time.perf_counter() * 1e9, time.monotonic() + _READY / 10
        while time.monotonic() < deadline:
            if any(int(at) - self._offset > last for _, _, at in self._marked()):
                break
            time.sleep(0.02)
        time.sleep(0.2)  # for what the other cores' buffers hold

    def _wait(self):
        """Make marked calls until both are seen.

        The first and the last function that it attaches to.
        """
        deadline = time.monotonic() + _READY
        while time.monotonic() < deadline:
            marks = self._marked()
            if {fields[1] for fields in marks} == {"getuid", "getgid"}:
                self._offset = _clock_offset(int(marks[-1][2]))
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        with open(self._errors) as file:
            words = file.read().strip().splitlines() or ["it wasn't ready in %g s" % _READY]
        self._process.kill()
        self._process.wait()
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)
        raise ProbeUnavailable("bpftrace: %s" % words[-1])


def _mark(path, name):
    return 'uprobe:%s:%s /pid == %d/ { printf("m %s %%llu\\n", nsecs); }\n' % (
        path,
        name,
        os.getpid(),
        name,
    )


def _libraries():
    """Return the files that this process has mapped to run."""
    with open("/proc/self/maps") as file:
        fields = [line.split(None, 5) for line in file]
    return sorted(
        {
            field[5].strip()
            for field in fields
            if len(field) == 6 and "x" in field[1] and field[5][0] == "/"
        }
    )


def _clock_offset(reading):
    """Return what bpftrace's clock is ahead of the monotonic one.

    It reads that, or the one that counts sleep, too.
    """
    monotonic, boot = (
        time.clock_gettime(time.CLOCK_MONOTONIC),
        time.clock_gettime(7),
    )  # CLOCK_BOOTTIME
    sleep = int((boot - monotonic) * 1e9)
    behind = int(monotonic * 1e9) - reading
    return sleep if abs(behind + sleep) < abs(behind) else 0


def _spans(lines, names, offset):
    """Yield a span for each begin and its end; calls of a thread nest."""
    open_ = {}
    for fields in lines:
        if len(fields) != 4 or fields[0] not in "be":
            continue
        kind, thread, at, index = fields[0], int(fields[1]), int(fields[2]) - offset, int(fields[3])
        stack = open_.setdefault((thread, index), [])
        if kind == "b":
            stack.append(at)
        elif stack:
            yield Span("library", names[index], "", "", stack.pop(), at, thread, None, -1, 0, -1)
