"""Agents that each break one requirement of docs/agents.md: ``python broken_agents.py FAULT``.

They are our worker with a predictor of numpy alone, of which one thing is changed.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from mlms_predictors._run.channel import AgentChannel
from mlms_predictors._run.protocol import OutgoingReply, encode
from mlms_predictors._run.worker import Worker

worker: Any = import_module("mlms_predictors._run.worker")
PREDICTOR = Path(__file__).parent / "predictors" / "mean.py"

FAULTS: dict[str, tuple[str, Callable[[], None]]] = {}
"""The requirement that each fault breaks first, by the fault's name, and what makes it."""

_HANGING = 600


def fault(requirement: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Add a fault, which is called as its function is."""

    def add(make: Callable[[], None]) -> Callable[[], None]:
        FAULTS[make.__name__] = (requirement, make)
        return make

    return add


def before(kind: str, change: Callable[[Any, dict[str, Any]], Any]) -> None:
    """Change the header of a request before it is done."""
    method = getattr(Worker, kind)

    @functools.wraps(method)
    def changed(self: Worker, header: dict[str, Any], arrays: Any) -> OutgoingReply:
        change(self, header)
        reply: OutgoingReply = method(self, header, arrays)
        return reply

    setattr(Worker, kind, changed)


def after(kind: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the fields and the arrays of a reply."""
    method = getattr(Worker, kind)

    @functools.wraps(method)
    def changed(self: Worker, header: dict[str, Any], arrays: Any) -> OutgoingReply:
        reply = method(self, header, arrays)
        fields, named = dict(reply.fields), dict(reply.arrays)
        change(fields, named)
        return OutgoingReply(fields, list(named.items()))

    setattr(Worker, kind, changed)


def fields_of(kind: str, **values: Any) -> None:
    """Give fields of a reply other values."""
    after(kind, lambda fields, arrays: fields.update(values))


def times_of(kind: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the times of a reply."""
    after(kind, lambda fields, arrays: change(arrays))


@fault("hello.answer")
def prints_into_its_replies() -> None:
    requests, replies = os.fdopen(os.dup(0), "rb", 1 << 16), os.fdopen(os.dup(1), "wb", 0)
    worker.take_channel = lambda: AgentChannel(requests, replies)
    before("hello", lambda self, header: print("loading the framework", flush=True))


@fault("hello.answer")
def says_nothing() -> None:
    before("hello", lambda self, header: time.sleep(_HANGING))


@fault("hello.protocol")
def speaks_another_version() -> None:
    fields_of("hello", protocol=1)


@fault("hello.fields")
def leaves_a_field_out() -> None:
    after("hello", lambda fields, arrays: fields.pop("python"))


@fault("hello.process")
def tells_another_process() -> None:
    fields_of("hello", process=1)


@fault("hello.framework")
def lacks_the_framework() -> None:
    fields_of("hello", versions={})


@fault("hello.requests")
def lists_no_requests() -> None:
    fields_of("hello", requests=None)


@fault("hello.requests")
def has_half_of_a_group() -> None:
    after("hello", lambda fields, arrays: fields["requests"].remove("turn"))


@fault("error.unknown")
def answers_any_request() -> None:
    answer: Any = worker._answer

    def answered(self: Worker, header: dict[str, Any], arrays: Any) -> Any:
        if header["type"] in worker.REQUESTS:
            return answer(self, header, arrays)
        return encode({"type": header["type"], "number": header["number"]})

    worker._answer = answered


@fault("error.early")
def ends_without_a_model() -> None:
    before("predict", lambda self, header: self._current or os._exit(3))


@fault("load.answer")
def crashes_in_load() -> None:
    before("load", lambda self, header: os.kill(os.getpid(), signal.SIGSEGV))


@fault("load.answer")
def hangs_in_load() -> None:
    before("load", lambda self, header: time.sleep(_HANGING))


@fault("load.used")
def uses_threads_of_its_own_choice() -> None:
    fields_of("load", threads=None)


@fault("load.used")
def tells_memory_before_in_kibibytes() -> None:
    after("load", lambda fields, arrays: fields.update(rss_before=fields["rss_before"] // 1024))


@fault("load.used")
def tells_a_wait_longer_than_the_load() -> None:
    fields_of("load", waited=500.0)


@fault("load.signature")
def has_an_input_of_an_unknown_type() -> None:
    fields_of("load", inputs=[["x", "bfloat99", [None, 256]]])


@fault("load.signature")
def has_an_axis_below_0() -> None:
    fields_of("load", inputs=[["x", "float32", [None, -1]]])


@fault("load.signature")
def has_an_input_that_nobody_holds() -> None:
    fields_of("load", inputs=[["x", "float32", [None, 10**15]]])


@fault("load.signature")
def has_two_inputs_of_one_name() -> None:
    after("load", lambda fields, arrays: fields.update(inputs=2 * fields["inputs"]))


@fault("load.options")
def takes_any_option() -> None:
    before("load", lambda self, header: header.update(options={}))


@fault("load.device")
def takes_any_device() -> None:
    before("load", lambda self, header: header.update(device="cpu"))


@fault("load.files")
def takes_any_file() -> None:
    before("load", lambda self, header: header["files"].update(graph=__file__))


@fault("predict.outputs")
def gives_another_type() -> None:
    after("predict", lambda fields, arrays: arrays.update(y=arrays["y"].astype("float64")))


@fault("predict.outputs")
def writes_a_line_without_an_end() -> None:
    def flood(self: Worker, header: dict[str, Any]) -> None:
        while self._current is not None:
            os.write(_replies(), b"x" * (1 << 16))

    before("predict", flood)


@fault("predict.outputs")
def sends_more_than_anybody_holds() -> None:
    def flood(self: Worker, header: dict[str, Any]) -> None:
        spec = '{"name":"y","dtype":"|u1","shape":[1099511627]}'
        line = f'{{"type":"predict","number":{header["number"]},"arrays":[{spec}]}}\n'
        if self._current is not None:
            os.write(_replies(), line.encode())
        while self._current is not None:
            os.write(_replies(), bytes(1 << 16))

    before("predict", flood)


def _replies() -> int:
    """Return the descriptor of the channel, which the worker has made of the first ones."""
    return max(int(name) for name in os.listdir("/proc/self/fd") if _is_pipe_to_write(name))


def _is_pipe_to_write(name: str) -> bool:
    try:
        is_pipe = os.readlink(f"/proc/self/fd/{name}").startswith("pipe:")
        flags = Path(f"/proc/self/fdinfo/{name}").read_text().split()[3]
    except OSError:
        return False
    return is_pipe and int(name) > 2 and int(flags, 8) & os.O_ACCMODE == os.O_WRONLY


@fault("predict.values")
def gives_other_values() -> None:
    after("predict", lambda fields, arrays: arrays.update(y=arrays["y"] * np.float32(1.001)))


@fault("predict.inputs")
def takes_any_input() -> None:
    predict = Worker.predict

    def answered(self: Worker, header: dict[str, Any], arrays: Any) -> OutgoingReply:
        try:
            return predict(self, header, arrays)
        except ValueError:
            return OutgoingReply({}, [])

    Worker.predict = answered  # type: ignore[method-assign]
    before("predict", lambda self, header: self._loaded)


@fault("run.times")
def tells_times_of_single_precision() -> None:
    times_of(
        "run", lambda times: times.update({"time:start": times["time:start"].astype("float32")})
    )


@fault("run.times")
def tells_no_growth() -> None:
    after("run", lambda fields, arrays: fields.pop("grown"))


@fault("run.times")
def tells_memory_below_0() -> None:
    fields_of("run", peak_rss=-1)


@fault("run.clock")
def tells_milliseconds() -> None:
    def scale(times: dict[str, Any]) -> None:
        for name in ("time:start", "time:end"):
            times[name] = 1e3 * times[name]

    times_of("run", scale)


@fault("run.clock")
def tells_the_time_of_day() -> None:
    def shift(times: dict[str, Any]) -> None:
        for name in ("time:start", "time:end"):
            times[name] = times[name] + 1e9

    times_of("run", shift)


@fault("run.times")
def leaves_no_time_between_calls() -> None:
    def stretch(times: dict[str, Any]) -> None:
        times["time:end"] = times["time:end"] + 1e-3

    times_of("run", stretch)


@fault("run.stop")
def stops_early() -> None:
    before("run", lambda self, header: header["stop"].update(seconds=0.0))


@fault("run.stop")
def stops_late() -> None:
    before("run", lambda self, header: header["stop"].update(longest=1.0))


@fault("run.counters")
def reads_no_counters() -> None:
    times_of("run", lambda times: times.update({"time:cpu": 0 * times["time:cpu"]}))


@fault("run.counters")
def counts_nanoseconds() -> None:
    times_of("run", lambda times: times.update({"time:cpu": 1e9 * times["time:cpu"]}))


@fault("run.outputs")
def calls_in_another_order() -> None:
    before("run", lambda self, header: header.update(order=[]))


@fault("run.again")
def forgets_the_batches() -> None:
    before(
        "run",
        lambda self, header: "batches" in header or self._bound.clear() or self._calls.clear(),
    )


@fault("run.memory")
def tells_another_peak() -> None:
    fields_of("run", peak_rss=1)


@fault("run.memory")
def tells_ten_times_the_peak() -> None:
    after("run", lambda fields, arrays: fields.update(peak_rss=10 * fields["peak_rss"]))


@fault("outputs.batch")
def calls_the_first_batch_only() -> None:
    before("outputs", lambda self, header: header.update(batch=0))


@fault("usage.fields")
def tells_no_memory() -> None:
    fields_of("usage", memory=0)


@fault("usage.fields")
def tells_memory_in_kibibytes() -> None:
    after("usage", lambda fields, arrays: fields.update(memory=fields["memory"] // 1024))


@fault("usage.fields")
def tells_other_threads() -> None:
    fields_of("usage", threads=1000)


@fault("bind.stop")
def ends_where_it_is_continued() -> None:
    before("bind", lambda self, header: signal.signal(signal.SIGCONT, lambda *_: os._exit(5)))


@fault("turn.count")
def times_the_calls_to_skip() -> None:
    before("turn", lambda self, header: header.update(count=header["count"] + header["skip"]))


@fault("turn.outputs")
def begins_at_the_first_call() -> None:
    before("turn", lambda self, header: header.update(first=0))


@fault("turn.memory")
def tells_no_peak_of_turns() -> None:
    fields_of("turn", peak_rss=None)


@fault("repeats.calls")
def compares_no_calls() -> None:
    fields_of("repeats", calls=0)


@fault("repeats.calls")
def takes_places_for_others() -> None:
    add = worker.Repeats.add

    def added(self: Any, first: int, outputs: Any) -> None:
        add(self, 0, outputs)

    worker.Repeats.add = added


@fault("repeats.calls")
def changes_what_it_kept() -> None:
    outputs = {"y": np.zeros((2, 256), "float32"), "rows": np.arange(2)}
    Worker.repeats = lambda self, header, arrays: OutgoingReply(  # type: ignore[method-assign]
        {"calls": 20, "differing": 2, "kept": [] if header["place"] else [0, 1]},
        list(outputs.items()),
    )


@fault("idle.seconds")
def tells_more_cpu_time_than_there_is() -> None:
    fields_of("idle", cpu=1e9)


@fault("idle.seconds")
def does_not_wait() -> None:
    before("idle", lambda self, header: header.update(seconds=0.0))


@fault("hold.cores")
def is_held_to_nothing() -> None:
    before("hold", lambda self, header: header.update(cores=sorted(os.sched_getaffinity(0))))


@fault("move.cores")
def does_not_move() -> None:
    first = min(os.sched_getaffinity(0))
    Worker.move = lambda *_: OutgoingReply(  # type: ignore[method-assign]
        {"cores": [first], "were_beyond": False}, []
    )


def hang() -> bool:
    time.sleep(_HANGING)
    return True


def on_reading(end: Callable[[dict[str, Any] | None], Any]) -> None:
    """Do something with each request that is read; None at the end of the input."""
    read: Any = worker.read_frame

    def reading(stream: Any) -> Any:
        try:
            header, arrays = read(stream)
        except EOFError:
            end(None)
            raise
        end(header)
        return header, arrays

    worker.read_frame = reading


@fault("end.bye")
def fails_at_its_end() -> None:
    on_reading(lambda header: header and header["type"] == "bye" and os._exit(4))


@fault("end.bye")
def does_not_end_where_it_need_not_leave() -> None:
    on_reading(
        lambda header: header and header["type"] == "bye" and not header.get("leave") and hang()
    )


@fault("end.bye")
def does_not_end() -> None:
    on_reading(lambda header: header and header["type"] == "bye" and hang())


@fault("end.input")
def goes_on_without_input() -> None:
    worker.HangUpMonitor = lambda requests: argparse.Namespace(busy=False)
    on_reading(lambda header: header is None and hang())


def nothing() -> None:
    """Be an agent that meets all requirements."""


def floods_its_log() -> None:
    before("hello", lambda self, header: os.write(2, b"a line of the framework\n" * 1_000_000))


def has_no_turns() -> None:
    fields_of("hello", requests=["hello", "load", "predict", "run", "outputs", "usage"])


SOUND = {make.__name__: make for make in (nothing, floods_its_log, has_no_turns)}
"""Agents that break no requirement."""


def main() -> None:
    """Be the agent that the first argument names."""
    name = sys.argv.pop(1)
    make = SOUND[name] if name in SOUND else FAULTS[name][1]
    make()
    sys.argv[1:] = [str(PREDICTOR)]
    worker.main()


if __name__ == "__main__":
    main()
