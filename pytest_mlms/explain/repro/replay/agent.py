"""An agent: a process in the environment of a side that runs the predictor, asked by frames.

``predictors/_run/protocol.py`` describes the frames: a line of JSON, then the bytes of arrays.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from array import array
from typing import IO, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, cast

from .npz import Array

_TIME = "time:"
_TAIL = 12  # lines of a log
_BYE_SECONDS = 20.0
_EXIT_SECONDS = 10.0  # of a process that ends as programs do, as the gate has it

Facts = Dict[str, Any]


class Failed(Exception):
    """The framework raised an error; the agent still runs."""


class Ended(Exception):
    """The agent ended, or was ended as it gave no answer; the text has the end of its log.

    ``how`` says how: a signal, an exit status, or that it gave no answer.
    """

    def __init__(self, how: str, tail: Sequence[str]):
        self.how = how
        lines = ["", "its log ends:"] + ["  " + line for line in tail] if tail else []
        super().__init__(how + "\n".join(lines))


class Launch(NamedTuple):
    """How to start agents of a side.

    ``command`` is the interpreter with its flags, ``environment`` all variables. ``worker`` and
    ``predictor`` are files, ``log`` is where the framework's own output goes. ``timeout`` is the
    longest wait for an answer in seconds.
    """

    command: Tuple[str, ...]
    environment: Dict[str, str]
    worker: str
    predictor: str
    log: str
    timeout: float = 600.0
    cores: Tuple[int, ...] = ()


class Agent:
    """A running agent; use it as a context, which ends it with all that it started."""

    def __init__(self, launch: Launch):
        self._launch = launch
        self._number = 0
        self._timed_out = False
        self.pid: Optional[int] = None
        self.versions: Dict[str, str] = {}
        command = list(launch.command) + [launch.worker, launch.predictor]
        if launch.cores:
            command += ["--cores", ",".join(map(str, launch.cores))]
        self._log = open(launch.log, "w+b")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            command,
            env=launch.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._requests = cast(IO[bytes], self._process.stdin)
        self._replies = cast(IO[bytes], self._process.stdout)

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def hello(self) -> None:
        """Have the framework imported. Raises Failed and Ended, as all requests do."""
        facts, _ = self.request("hello")
        self.pid = int(facts["process"])
        self.versions = facts["versions"]

    def request(
        self, kind: str, fields: Optional[Facts] = None, arrays: Sequence[Array] = ()
    ) -> Tuple[Facts, List[Array]]:
        """Send a request; return the fields and the arrays of its reply."""
        self._number += 1
        header = dict(fields or {}, type=kind, number=self._number)
        slow = threading.Timer(self._launch.timeout, self._give_up)
        slow.daemon = True
        slow.start()
        try:
            self._send(header, arrays)
            facts, found = self._read()
        except (OSError, EOFError, ValueError):
            raise self._ended() from None
        finally:
            slow.cancel()
        if facts["type"] == "error":
            raise Failed(": ".join(filter(None, (facts["error"], facts["message"]))))
        return facts, found

    def pause(self) -> None:
        """Stop the agent's processes, until ``resume``."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def leave(self) -> None:
        """Have the agent end as programs do; raises Ended where it fails so."""
        self.resume()
        with contextlib.suppress(OSError, ValueError):
            self._send({"type": "bye", "leave": True}, ())
        try:
            status = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._end_group()
            raise Ended("had not ended %g s after its last answer" % _EXIT_SECONDS, ()) from None
        if status:
            raise self._ended()

    def close(self, wait: bool = True) -> None:
        """End the agent, and what is left of its processes; let it free its model if ``wait``."""
        if self._log.closed:
            return
        self.resume()
        if wait:
            with contextlib.suppress(OSError, ValueError):
                self._send({"type": "bye"}, ())
            with contextlib.suppress(OSError):
                self._requests.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_BYE_SECONDS)
        self._end_group()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._requests.close()
        self._replies.close()
        self._log.close()

    def _send(self, header: Facts, arrays: Sequence[Array]) -> None:
        specs = [{"name": one.name, "dtype": one.dtype, "shape": list(one.shape)} for one in arrays]
        text = json.dumps(dict(header, arrays=specs), allow_nan=False)
        self._requests.write(text.encode() + b"\n")
        for one in arrays:
            self._requests.write(one.data)
        self._requests.flush()

    def _read(self) -> Tuple[Facts, List[Array]]:
        line = self._replies.readline()
        if not line:
            raise EOFError
        facts = json.loads(line.decode())
        found = []
        for spec in facts.pop("arrays"):
            count = int(spec["dtype"][2:])
            for size in spec["shape"]:
                count *= size
            data = self._replies.read(count)
            if len(data) < count:
                raise EOFError
            found.append(Array(spec["name"], spec["dtype"], tuple(spec["shape"]), data))
        return facts, found

    def _give_up(self) -> None:
        self._timed_out = True
        self._end_group()

    def _ended(self) -> Ended:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_BYE_SECONDS)
        self._end_group()
        code = self._process.wait()
        if self._timed_out:
            how = "gave no answer in %g s" % self._launch.timeout
        elif code < 0:
            how = "was killed by %s" % _signal_name(-code)
        else:
            how = "ended with exit status %d" % code
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return Ended(how, lines[-_TAIL:])

    def _signal(self, number: int) -> None:
        if self.pid is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _end_group(self) -> None:
        for group in (self.pid, self._process.pid):
            if group is not None and self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)


def seconds_of(arrays: Sequence[Array], name: str) -> List[float]:
    """Return the times of a name in a reply."""
    for one in arrays:
        if one.name == _TIME + name:
            values = array("d")
            values.frombytes(one.data)
            if sys.byteorder == "big" and one.dtype[0] == "<":
                values.byteswap()
            return list(values)
    raise KeyError(name)


def outputs_of(arrays: Sequence[Array]) -> List[Array]:
    """Return the arrays of a reply that are no times."""
    return [one for one in arrays if not one.name.startswith(_TIME)]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number
