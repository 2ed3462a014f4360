"""A test of an agent by the requirements of docs/agents.md, in whatever language it is written.

Each requirement is a function that asks the agent, and raises Broken or AgentError where it isn't
met. An agent that an error ended is started again for the next one.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mlms_predictors import Tensor
from mlms_predictors._run import protocol
from mlms_predictors._run.channel import CLOSING
from mlms_predictors._run.replies import HelloReply, LoadReply
from mlms_predictors._run.scenarios import CAPACITY

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Launch
from pytest_mlms.measure.agent.channel import is_array, read_record
from pytest_mlms.measure.agent.opening import load_model
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.measure.agent.process import Agent, Array, Refused, start_agent
from pytest_mlms.measure.agent.registry import GROUPS

Arrays = dict[str, Array]

_MOST_BYTES = 1 << 30  # of a reply's arrays
_LONGEST_TEXT = 4096  # characters
_END_SECONDS = 10.0
_END_SECONDS_OF_INPUT = CLOSING - 1.0  # the supervisor ends it then
_LATE = 0.25  # seconds that a call or a clock may be beyond a limit, on a busy machine
_ALIKE = 4  # times that memory may be of what the system tells, at another moment
_MOST_NUMBERS = 1 << 28  # of an input
_CLOSE = 1e-5  # of the largest value
_UNKNOWN = "mlms_check"
_BASIC = ("hello.answer", "hello.fields", "load.answer", "load.signature")
_TIMED, _TURNS = "performance", "upgrades"


class Broken(Exception):
    """A requirement isn't met; the text says what was found."""


Check = Callable[["Subject"], None]


class Requirement(NamedTuple):
    """A requirement of docs/agents.md: its name, its text, the group that it is of, its check."""

    name: str
    text: str
    group: str
    check: Check


class Finding(NamedTuple):
    """A requirement, and the problem: "" where it is met, None where it was not checked."""

    requirement: Requirement
    problem: str | None


REQUIREMENTS: list[Requirement] = []
"""All of them, in the order in which they are checked."""


@dataclass
class Subject:
    """The agent that is checked, and the model that it loads.

    ``files`` are the model's by role. ``answer`` returns the right outputs for inputs, None where
    these aren't known. ``log`` is where the agent's output goes; ``timeout`` is the longest wait
    for a reply, in seconds. ``size`` is what free axes get.
    """

    launch: Launch
    framework: str
    files: Mapping[str, Path]
    log: Path
    timeout: float
    device: str = "cpu"
    answer: Callable[[Arrays], Arrays] | None = None
    size: int = 2
    _agent: Agent | None = None
    _predictor: Predictor | None = None
    _batches: list[Arrays] = field(default_factory=list)

    @property
    def agent(self) -> Agent:
        """The agent, which is started where none runs."""
        if self._agent is None or self._agent.was_ended:
            self._predictor = None
            self._agent = start_agent(self.launch, Path(), self.log, self.timeout)
            self._agent.channel.most_bytes = _MOST_BYTES
        return self._agent

    def end(self) -> None:
        """End the agent; the next requirement starts another."""
        if self._agent is not None:
            self._agent.kill()
        self._agent = None

    def hello(self) -> HelloReply:
        """Return the checked reply to ``hello``."""
        agent = self.agent
        facts = agent.request("hello").facts
        with agent.checking("hello"):
            hello: HelloReply = read_record(HelloReply, facts, _LONGEST_TEXT)
        agent.learn_pid(hello.process)
        return hello

    def load(self, **fields: Any) -> LoadReply:
        """Load the model, with other fields than the usual ones; return the checked reply."""
        request = {
            "files": {role: str(path) for role, path in self.files.items()},
            "device": self.device,
            "threads": 1,
            "options": {},
            "allow_code": False,
            **fields,
        }
        self.hello()
        facts = self.agent.request("load", request).facts
        with self.agent.checking("load"):
            return read_record(LoadReply, facts, _LONGEST_TEXT)

    @property
    def predictor(self) -> Predictor:
        """The loaded model."""
        if self._predictor is None or self._predictor.agent.was_ended:
            hello = self.hello()
            files = {role: str(path) for role, path in self.files.items()}
            request = {"files": files, "device": self.device, "threads": 1, "options": {}}
            self._predictor = load_model(self.agent, request, hello, 0.0)
            rng = np.random.default_rng(1)
            self._batches = [drawn(self._predictor.inputs, self.size, rng) for _ in range(2)]
        return self._predictor

    @property
    def batches(self) -> list[Arrays]:
        """Two batches of random inputs of the model."""
        assert self.predictor is not None
        return self._batches

    def run(self, batches: Sequence[Arrays] = (), **asked: Any) -> ScenarioRun:
        """Run a scenario: ten calls, unless something else is asked."""
        fields: dict[str, Any] = {"seconds": 0.0, "least": 10, "longest": 60.0, **asked}
        return self.predictor.run("single_stream", batches, **fields)

    @property
    def has_ended(self) -> bool:
        """True if an error ended the agent."""
        return self._agent is not None and self._agent.was_ended


def drawn(inputs: Sequence[Tensor], size: int, rng: np.random.Generator) -> Arrays:
    """Return random inputs of a signature, of 1 to 2; free axes have ``size``."""
    found: Arrays = {}
    for tensor in inputs:
        shape = [size if axis is None else axis for axis in tensor.shape]
        found[tensor.name] = (
            np.full(shape, "text")
            if tensor.dtype == "string"
            else (1 + rng.random(shape)).astype(tensor.dtype)
        )
    return found


def check_agent(subject: Subject) -> Iterator[Finding]:
    """Yield each requirement as it is checked; the agent has ended then.

    Of an agent that can't say hello or load the model nothing else is checked. Where it ended in an
    answer to a type of request, the others of this type aren't checked.
    """
    answered: set[str] = set()
    ended: set[str] = set()
    is_usable = True
    try:
        for requirement in REQUIREMENTS:
            kind = requirement.name.partition(".")[0]
            is_there = requirement.group == "use" or answered.issuperset(GROUPS[requirement.group])
            if not is_usable or not is_there or kind in ended:
                yield Finding(requirement, None)
                continue
            problem = _problem_of(requirement, subject)
            yield Finding(requirement, problem)
            if problem and requirement.name in _BASIC:
                is_usable = False
            if problem and subject.has_ended:
                ended.add(kind)
            if requirement.name == "hello.requests" and not problem:
                answered.update(subject.hello().requests or ())
    finally:
        subject.end()


def _problem_of(requirement: Requirement, subject: Subject) -> str:
    try:
        requirement.check(subject)
    except (Broken, MlmsError) as error:
        text = str(error).replace("--mlms-timeout", "--timeout")
        text = text.replace(f"its log, {subject.log}, ends", "its log ends")
        return text.replace(f" (log: {subject.log})", "") or type(error).__name__
    return ""


def _requires(name: str, text: str, group: str = "use") -> Callable[[Check], Check]:
    """Add a check to the requirements."""

    def add(check: Check) -> Check:
        REQUIREMENTS.append(Requirement(name, text, group, check))
        return check

    return add


def _expect(is_met: bool, found: str) -> None:
    if not is_met:
        raise Broken(found)


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Raise Broken where a request is not answered by an error, or the agent ends in it."""
    try:
        yield
    except Refused:
        return
    raise Broken(f"{what} was not refused")


def _expect_same(found: Mapping[str, Array], expected: Mapping[str, Array], what: str) -> None:
    for name, values in expected.items():
        other = found.get(name)
        if other is None:
            raise Broken(f"{what} lack {name!r}")
        if other.shape != values.shape or other.dtype != values.dtype:
            raise Broken(
                f"{what} have {name!r} as {other.dtype} {list(other.shape)}, "
                f"not {values.dtype} {list(values.shape)}"
            )
        if values.dtype.kind not in "fc":
            _expect(np.array_equal(other, values), f"{what} have another {name!r}")
            continue
        limit = _CLOSE * float(np.abs(values).max(initial=0.0))
        _expect(
            np.allclose(other, values, rtol=0, atol=limit, equal_nan=True),
            f"{what} have another {name!r}, by up to {np.abs(other - values).max(initial=0.0):.3g}",
        )


def _memory_of(subject: Subject) -> int:
    """Return the bytes that the agent holds, less pages of files; 0 where the system won't tell."""
    try:
        text = Path(f"/proc/{subject.agent.pid}/status").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in text.splitlines())
    kibibytes = [int(words[1]) for words in lines if words[0] in ("RssAnon:", "VmSwap:")]
    return 1024 * sum(kibibytes)


def _expect_like(name: str, told: int, found: int) -> None:
    """Expect about what the system tells, such as bytes instead of kibibytes."""
    is_like = not found or found / _ALIKE <= told <= found * _ALIKE
    _expect(is_like, f"{name!r} is {told}, and the system tells {found}")


@_requires("hello.answer", "`hello` is answered by one frame, and nothing else is written there")
def _answers_hello(subject: Subject) -> None:
    subject.agent.request("hello")


@_requires("hello.protocol", f"`protocol` is {protocol.VERSION}")
def _speaks_the_version(subject: Subject) -> None:
    told = subject.agent.request("hello").facts.get("protocol")
    _expect(told == protocol.VERSION, f"it is {told!r}")


@_requires("hello.fields", "the reply has its fields, of their types")
def _says_hello(subject: Subject) -> None:
    subject.hello()


@_requires("hello.process", "`process` is the id of the process that answers")
def _tells_its_process(subject: Subject) -> None:
    told = subject.hello().process
    _expect(subject.agent.pid == told, f"{told} is no process that this command has started")


@_requires("hello.framework", "`versions` has the framework, and `devices` the device")
def _tells_the_framework(subject: Subject) -> None:
    hello = subject.hello()
    name = subject.framework
    _expect(name in hello.versions, f"there is no {name!r} in {dict(hello.versions)}")
    _expect(subject.device in hello.devices, f"there is no {subject.device!r} in {hello.devices}")


@_requires("hello.requests", "`requests` has the group use, and of each other group all or none")
def _tells_its_requests(subject: Subject) -> None:
    told = subject.hello().requests
    _expect(told is not None, "there is no list of requests")
    for group, names in GROUPS.items():
        lacking = [name for name in names if name not in (told or ())]
        if lacking and (group == "use" or len(lacking) < len(names)):
            raise Broken(f"of the group {group} it lacks {', '.join(lacking)}")


@_requires("error.unknown", "an unknown request is answered by the error NotImplementedError")
def _refuses_an_unknown_request(subject: Subject) -> None:
    subject.hello()
    try:
        subject.agent.request(_UNKNOWN)
    except Refused as error:
        _expect(error.error == "NotImplementedError", f"the error is {error.error}")
    else:
        raise Broken("it was answered")
    subject.hello()


@_requires("error.early", "a request without a model is answered by an error")
def _refuses_to_predict_without_a_model(subject: Subject) -> None:
    subject.end()
    subject.hello()
    with _refusing("predict before load"):
        subject.agent.request("predict", arrays=[("x", np.zeros(1, np.float32))])
    subject.hello()


@_requires("load.answer", "`load` is answered with its fields, of their types")
def _loads(subject: Subject) -> None:
    subject.load()


@_requires("load.used", "`device` and `threads` are what was asked for")
def _uses_what_was_asked_for(subject: Subject) -> None:
    subject.end()
    subject.hello()
    held = _memory_of(subject)
    began = time.perf_counter()
    loaded = subject.load()
    took = time.perf_counter() - began
    _expect(loaded.device == subject.device, f"the device is {loaded.device!r}")
    _expect(loaded.threads == 1, f"asked for 1 thread, it has {loaded.threads}")
    for seconds in (loaded.seconds, loaded.waited):
        _expect(0 <= seconds <= took, f"a time is {seconds:g} s, and the reply came in {took:g} s")
    _expect_like("rss_before", loaded.rss_before, held)


@_requires("load.signature", "inputs and outputs have names of their own, and numpy's types")
def _tells_the_signature(subject: Subject) -> None:
    loaded = subject.load()
    for tensors in (loaded.inputs, loaded.outputs):
        names = [tensor.name for tensor in tensors]
        _expect(len(set(names)) == len(names), f"a name is twice in {names}")
        unknown = [tensor for tensor in tensors if not is_array(tensor)]
        _expect(not unknown or tensors is loaded.outputs, f"numpy has no type {unknown[:1]}")
    for tensor in loaded.inputs:
        sizes = [subject.size if axis is None else axis for axis in tensor.shape]
        can_be = all(size >= 0 for size in sizes) and math.prod(sizes) <= _MOST_NUMBERS
        _expect(bool(tensor.dtype) and can_be, f"there can be no such input: {tensor}")
    _expect(any(map(is_array, loaded.outputs)), "no output is an array")


@_requires("load.options", "an option that the agent doesn't know is refused")
def _refuses_an_unknown_option(subject: Subject) -> None:
    with _refusing(f"the option {_UNKNOWN!r}"):
        subject.load(options={_UNKNOWN: 1})
    subject.load()


@_requires("load.device", "a device that isn't there is refused")
def _refuses_an_unknown_device(subject: Subject) -> None:
    with _refusing("the device 'mlms:9'"):
        subject.load(device="mlms:9")
    subject.load()


@_requires("load.files", "a file that can't be read is refused, and the next one is loaded")
def _refuses_a_missing_file(subject: Subject) -> None:
    nowhere = {role: str(path.with_name(_UNKNOWN)) for role, path in subject.files.items()}
    with _refusing("a file that isn't there"):
        subject.load(files=nowhere)
    subject.load()


@_requires("predict.outputs", "the outputs come in the order of the signature, of its types")
def _gives_the_outputs(subject: Subject) -> None:
    found = subject.predictor.predict(subject.batches[0])
    expected = [tensor for tensor in subject.predictor.outputs if is_array(tensor)]
    names = [name for name in found if name in {tensor.name for tensor in expected}]
    _expect(names == [tensor.name for tensor in expected], f"the order is {names}")
    for tensor in expected:
        array = found[tensor.name]
        dtype = "string" if array.dtype.kind == "U" else array.dtype.name
        _expect(tensor.dtype in ("", dtype), f"{tensor.name!r} is {dtype}, not {tensor.dtype}")
        _expect(
            not tensor.shape or len(tensor.shape) == array.ndim,
            f"{tensor.name!r} has {array.ndim} axes, not {len(tensor.shape)}",
        )


@_requires("predict.values", "the outputs are those of the model for these inputs")
def _gives_the_right_values(subject: Subject) -> None:
    for batch in subject.batches:
        found = subject.predictor.predict(batch)
        if subject.answer is not None:
            _expect_same(found, subject.answer(batch), "the outputs")
        _expect_same(subject.predictor.predict(batch), found, "the outputs of a second call")


@_requires("predict.inputs", "arrays that don't fit the model are refused, and it goes on")
def _refuses_other_inputs(subject: Subject) -> None:
    agent, predictor = subject.agent, subject.predictor
    (name, array), *others = [*subject.batches[0].items()]
    wrong = {
        "an input of another type": array.astype("int16" if array.dtype != np.int16 else "f8"),
        "an input with an axis more": array[..., None],
    }
    for what, values in wrong.items():
        with _refusing(what):
            agent.request("predict", arrays=[(name, values), *others])
    with _refusing("a call without an input"):
        agent.request("predict", arrays=others)
    predictor.predict(subject.batches[0])


@_requires("run.times", "times are rows of float64 seconds, as many as there were calls", _TIMED)
def _tells_times(subject: Subject) -> None:
    run = subject.run(subject.batches[:1], least=7)
    _expect(len(run.times["start"]) == 7, f"asked for 7 calls, there are {len(run.latencies)}")


@_requires("run.clock", "calls are timed by the monotonic clock, one after the other", _TIMED)
def _times_by_the_clock(subject: Subject) -> None:
    batches = subject.batches[:1]
    before = time.perf_counter()
    times = subject.run(batches, least=20).times
    after = time.perf_counter()
    in_turn = np.stack([times["start"], times["end"]], axis=1).ravel()
    _expect(bool((np.diff(in_turn) >= 0).all()), "a call starts before the one before it ends")
    _expect(
        before <= in_turn[0] and in_turn[-1] <= after,
        f"calls were from {in_turn[0] - before:.6f} to {in_turn[-1] - before:.6f} s after the "
        f"request, whose reply came after {after - before:.6f} s",
    )
    _expect(float(np.median(times["end"] - times["start"])) > 0, "calls take no time")


@_requires("run.stop", "it ends after `seconds` and `least` calls, or after `longest`", _TIMED)
def _stops(subject: Subject) -> None:
    for least, seconds in ((1, 0.0), (25, 0.0), (1, 0.2)):
        times = subject.run(subject.batches[:1], least=least, seconds=seconds).times
        count, took = len(times["start"]), times["end"][-1] - times["start"][0]
        _expect(count >= least, f"asked for {least} calls, there are {count}")
        _expect(count == least or seconds > 0, f"asked for {least} calls, there are {count}")
        _expect(
            took >= seconds or count >= CAPACITY, f"asked for {seconds} s, it took {took:.3f} s"
        )
    times = subject.run(subject.batches[:1], least=CAPACITY, seconds=60.0, longest=0.2).times
    took = times["start"][-1] - times["start"][0]
    _expect(took < 0.2 + _LATE, f"the longest was 0.2 s, and a call started after {took:.3f} s")


@_requires("run.counters", "`wait` and `cpu` are read before all calls and after them", _TIMED)
def _reads_counters(subject: Subject) -> None:
    batches = subject.batches[:1]
    began = time.perf_counter()
    times = subject.run(batches, seconds=0.2).times
    took = time.perf_counter() - began
    at = times["at"]
    calls = len(times["start"])
    _expect(at[0] == 0 and at[-1] == calls, f"they are read after {at[0]:g} and {at[-1]:g} calls")
    _expect(bool((np.diff(at) > 0).all()), "'at' doesn't rise")
    for name in ("wait", "cpu"):
        _expect(bool((np.diff(times[name]) >= 0).all()), f"{name!r} falls")
        most = (took + _LATE) * (1 if name == "wait" else os.cpu_count() or 1)
        rose = times[name][-1] - times[name][0]
        _expect(rose <= most, f"{name!r} rose by {rose:g} s in {took:.3f} s")
    if subject.device == "cpu":
        spent = times["cpu"][-1] - times["cpu"][0]
        _expect(spent > 0, "the process took no CPU time")


@_requires("run.outputs", "the outputs are those of the first call in `order`", _TIMED)
def _gives_the_outputs_of_the_first_call(subject: Subject) -> None:
    first, second = subject.batches
    run = subject.run([first, second], order=[1, 0], least=4)
    _expect_same(run.outputs, subject.predictor.predict(second), "the outputs")


@_requires("run.again", "without arrays it calls the batches of the last run", _TIMED)
def _runs_again(subject: Subject) -> None:
    run = subject.run(subject.batches)
    again = subject.run()
    _expect(len(again.latencies) == len(run.latencies), "it makes another number of calls")
    _expect_same(again.outputs, run.outputs, "the outputs")


@_requires("run.memory", "`peak_rss` counts as `rss_before`, `grown` what is held since", _TIMED)
def _tells_memory(subject: Subject) -> None:
    run = subject.run(subject.batches[:1])
    before = subject.predictor.rss_before
    _expect(run.peak_bytes >= before, f"the peak is {run.peak_bytes}, and before it was {before}")
    _expect_like("peak_rss", run.peak_bytes, _memory_of(subject))
    _expect(abs(run.grown) <= run.peak_bytes, f"{run.grown} bytes more are held than there were")


@_requires("outputs.batch", "`outputs` has those of the batch with this number", _TIMED)
def _gives_the_outputs_of_a_batch(subject: Subject) -> None:
    subject.run(subject.batches)
    for number, batch in enumerate(subject.batches):
        found = subject.predictor.last_outputs(number)
        _expect_same(found, subject.predictor.predict(batch), f"the outputs of batch {number}")


@_requires("usage.fields", "`usage` tells memory, threads and descriptors", _TIMED)
def _tells_usage(subject: Subject) -> None:
    usage = subject.predictor.usage(collect=True)
    found = (usage.memory, usage.threads, usage.descriptors)
    _expect(min(found) > 0, f"memory, threads and descriptors are {found}")
    _expect_like("memory", usage.memory, _memory_of(subject))
    for name, folder in (("threads", "task"), ("descriptors", "fd")):
        with contextlib.suppress(OSError):
            count = len(os.listdir(f"/proc/{subject.agent.pid}/{folder}"))
            _expect_like(name, getattr(usage, name), count)


@_requires("bind.stop", "an agent that says `stoppable` goes on after SIGSTOP and SIGCONT", _TURNS)
def _goes_on_after_a_stop(subject: Subject) -> None:
    clocks = subject.predictor.bind(subject.batches)
    if clocks.stoppable:
        subject.agent.pause()
        subject.agent.resume()
    subject.predictor.turn(2)


@_requires("turn.count", "`count` calls are timed, after `skip` that are not", _TURNS)
def _makes_a_turn(subject: Subject) -> None:
    subject.predictor.bind(subject.batches)
    turn = subject.predictor.turn(count=3, skip=2)
    found = len(turn.times["start"])
    _expect(found == 3, f"asked for 3 calls, there are {found}")


@_requires("turn.outputs", "with `outputs` those of the call at `first` come, else none", _TURNS)
def _gives_the_outputs_of_a_turn(subject: Subject) -> None:
    predictor = subject.predictor
    first, second = subject.batches
    predictor.bind([first, second], [1, 0, 0], 2)
    _expect(not predictor.turn(3).outputs, "there are outputs that were not asked for")
    for place, batch in enumerate((second, first, first)):
        found = predictor.turn(3, first=place, outputs=True).outputs
        _expect_same(found, predictor.predict(batch), f"the outputs at place {place}")


@_requires("turn.memory", "with `memory` the peak comes", _TURNS)
def _tells_the_memory_of_a_turn(subject: Subject) -> None:
    subject.predictor.bind(subject.batches)
    peak = subject.predictor.turn(2, memory=True).peak_bytes
    _expect(bool(peak), "there is no peak")


@_requires("repeats.calls", "calls of turns are compared with others of the same place", _TURNS)
def _compares_repeated_calls(subject: Subject) -> None:
    predictor = subject.predictor
    order = [0, 1, 1, 0, 1]
    predictor.bind(subject.batches, order, len(order))
    for first in range(3 * len(order)):
        predictor.turn(3, first=first % len(order))
    found = predictor.repeated_calls()
    calls = 3 * len(order)
    _expect(found.calls >= calls, f"of {calls} turns {found.calls} calls were compared")
    _expect(0 <= found.differing < found.calls, f"{found.differing} of {found.calls} differ")
    for place, outputs in found.kept:
        expected = predictor.predict(subject.batches[order[place]])
        _expect_same(outputs, expected, f"outputs that are kept of place {place}")


@_requires("idle.seconds", "`idle` calls nothing for the seconds, and tells the CPU time", _TURNS)
def _idles(subject: Subject) -> None:
    predictor = subject.predictor
    began = time.perf_counter()
    cpu = predictor.idle(0.2)
    took = time.perf_counter() - began
    _expect(took >= 0.2, f"it took {took:.3f} s instead of 0.2 s")
    _expect(0 <= cpu <= took * (os.cpu_count() or 1), f"the CPU time is {cpu:g} of {took:.3f} s")


@_requires("hold.cores", "`hold` holds the thread that makes the calls to the cores", _TURNS)
def _holds(subject: Subject) -> None:
    predictor = subject.predictor
    cores = sorted(os.sched_getaffinity(subject.agent.pid))
    predictor.hold(cores[:1])
    held = sorted(os.sched_getaffinity(subject.agent.pid))
    predictor.hold(cores)
    _expect(held == cores[:1], f"asked for {cores[:1]}, it has {held}")


@_requires("move.cores", "`move` moves all threads, and tells the cores that it has then", _TURNS)
def _moves(subject: Subject) -> None:
    predictor = subject.predictor
    cores = sorted(os.sched_getaffinity(subject.agent.pid))
    predictor.hold(cores)
    moved, were_beyond = predictor.moved(dict.fromkeys(cores, cores[0]))
    tasks = map(int, os.listdir(f"/proc/{subject.agent.pid}/task"))
    elsewhere = [task for task in tasks if os.sched_getaffinity(task) != {cores[0]}]
    subject.end()
    _expect(moved.cores == (cores[0],), f"it tells {moved.cores}, not {cores[:1]}")
    _expect(not elsewhere, f"{len(elsewhere)} of its threads were not moved")
    _expect(not were_beyond, "it tells that threads were on other cores")


@_requires("end.bye", "after `bye` the agent ends, with status 0")
def _ends(subject: Subject) -> None:
    for as_programs in (True, False):
        assert subject.predictor
        subject.agent.leave(_END_SECONDS, as_programs=as_programs)
        problem = subject.agent.end_of_leaving(_END_SECONDS)
        _expect(not problem, problem)


@_requires("end.input", "the agent ends where its input ends")
def _ends_with_its_input(subject: Subject) -> None:
    assert subject.predictor
    process, log = subject.agent.process, subject.agent.log
    subject.agent.channel.close()
    try:
        process.wait(_END_SECONDS_OF_INPUT)
    except subprocess.TimeoutExpired:
        raise Broken(f"it still ran {_END_SECONDS_OF_INPUT:g} s later") from None
    finally:
        process.kill()
        process.wait()
        log.close()
