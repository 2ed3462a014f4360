"""A model loaded in an agent, and the requests that it answers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mlms_predictors import Profile, Structure, Tensor
from mlms_predictors._run.generation import ANSWER, Choice
from mlms_predictors._run.loadgen import LOG
from mlms_predictors._run.peaks import Peaks
from mlms_predictors._run.protocol import TIME, ProtocolError
from mlms_predictors._run.replies import (
    BindReply,
    DeviceBytes,
    IdleReply,
    LoadGenReply,
    LoadRunReply,
    MoveReply,
    ProfileReply,
    RepeatsReply,
    RunReply,
    ServedReply,
    TraceReply,
    TurnReply,
    UsageReply,
)
from mlms_predictors._run.scenarios import CAPACITY

from pytest_mlms.core.errors import AgentError
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.measure.agent.channel import (
    UNTOLD,
    Energy,
    check_outputs,
    check_served,
    check_trace,
    read_energy,
    read_record,
    take_times,
    take_tokens,
)
from pytest_mlms.measure.agent.process import Agent, Array, Reply
from pytest_mlms.measure.agent.signature import named_tensors, ordered_batch

if TYPE_CHECKING:
    from pytest_mlms.measure.agent.load import LoadGenPlan, LoadPlan, LoadRun

_RUN_TIMES = ("start", "end", "wait", "cpu", "at")
_DEVICE_TIMES = (*_RUN_TIMES, "device")


class Clocks(NamedTuple):
    """The times that an agent can measure of its turns, and whether it may be stopped.

    ``wait`` is the wait for a core, ``device`` the time on the device. ``bind_seconds`` is what it
    took to bind the first batch, in which a framework may compile the model. ``energy`` is whether
    runs of ``energy_seconds`` or longer tell the energy of the device.
    """

    wait: bool
    device: bool
    stoppable: bool
    bind_seconds: float = 0.0
    energy: bool = False
    energy_seconds: float = 0.0


class RepeatedCalls(NamedTuple):
    """Repeated calls on the same batch in the turns of a process.

    ``calls`` were compared by their digests, and ``differing`` of them gave something else than
    most. ``kept`` has the batch and the outputs of a few.
    """

    calls: int
    differing: int
    kept: Sequence[tuple[int, Mapping[str, Array]]] = ()


class ServedCall(NamedTuple):
    """A call under load: the places of its samples, in their order, and its outputs by name.

    ``usual`` is whether most calls of these samples gave the same. ``picks`` is how many of the
    calls that were picked did.
    """

    samples: Sequence[int]
    outputs: Mapping[str, Array]
    usual: bool = True
    picks: int = 1

    def batch(self, batches: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return its inputs: samples of ``batches``, joined on the first axis if several."""
        inputs = [batches[sample] for sample in self.samples]
        if len(inputs) == 1:
            return dict(inputs[0])
        return {name: np.concatenate([each[name] for each in inputs]) for name in inputs[0]}


class ServedCalls(NamedTuple):
    """Calls of a load, a few of which are ``told``.

    Of all ``calls`` that are held ``others`` gave something else than most of the same samples.
    ``held`` and ``differing`` are both numbers by sample.
    """

    told: Sequence[ServedCall] = ()
    calls: int = 0
    others: int = 0
    held: Sequence[int] = ()
    differing: Sequence[int] = ()


class Turn(NamedTuple):
    """The result of a turn of a few calls.

    ``times`` has raw times in seconds, ``outputs`` arrays, both by name. ``peak_bytes`` is the peak
    of resident memory, ``device_memory`` of a GPU's; None where they were not asked for.
    ``event_times`` are the predictor's of a GPU, asked for with them.
    """

    times: Mapping[str, Array]
    outputs: Mapping[str, Array]
    peak_bytes: int | None
    device_memory: DeviceBytes | None = None
    event_times: tuple[float, float | None] | None = None


@dataclass(frozen=True)
class ScenarioRun:
    """The result of a scenario.

    ``times`` has raw times in seconds by name; mlms_predictors._run.scenarios.Samples describes
    them. ``outputs`` are the last ones for the first batch, and ``sha256`` their digest.
    ``bind_seconds`` went into binding that batch, 0 where the batches were bound before.
    ``grown`` are the bytes that the process holds more than before the calls, ``busy`` the threads
    that gained CPU time in them, None where that isn't known. ``device_memory`` is the peak on a
    GPU, None on the CPU.
    """

    times: Mapping[str, Array]
    outputs: Mapping[str, Array]
    sha256: str
    peak_bytes: int
    bind_seconds: float = 0.0
    energy: Energy = UNTOLD
    grown: int = 0
    busy: int | None = None
    device_memory: DeviceBytes | None = None

    @property
    def latencies(self) -> Array:
        """Seconds from the start to the end of each call."""
        seconds = self.times["end"] - self.times["start"]
        return np.asarray(seconds)


@dataclass(frozen=True)
class Predictor:
    """A loaded model.

    ``device``, ``threads`` and ``cores`` are what it really uses; None is the framework's choice of
    threads, and all cores. ``versions``, ``python`` and ``executable`` are the agent's. Times are
    seconds, memory is bytes. ``l2_bytes`` is the size of a GPU's L2 cache, 0 if not told.
    ``start_seconds`` has those of the interpreter and of the
    framework's import, and where two agents are started at once also the wait for the other.
    ``own_inputs`` and ``own_outputs`` are the model's own names by those
    of a manifest, where they differ. ``default_output`` is the model's own name of the output that
    the framework gives a caller who names none, "" where it has no such one. ``device_facts`` are
    for the record: what its predictor set for the device, and what runs where. ``unmeasured`` has
    the reason of each quantity that can't be measured of it, by name. If it ``generates``, its
    calls have times of tokens.
    """

    agent: Agent
    device: str
    threads: int | None
    cores: tuple[int, ...] | None
    versions: Mapping[str, str]
    python: str
    executable: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    start_seconds: float
    load_seconds: float
    load_waited: float
    rss_before: int
    peak_is_since_load: bool
    interpreter_seconds: float | None = None
    import_seconds: float | None = None
    import_waited: float = 0.0
    default_output: str = ""
    l2_bytes: int = 0
    device_facts: Mapping[str, str] | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    own_inputs: Mapping[str, str] = field(default_factory=dict)
    own_outputs: Mapping[str, str] = field(default_factory=dict)
    generates: bool = False

    @property
    def seconds_until_loaded(self) -> float | None:
        """Seconds from the process's start, less waits for a core; None where not all are told."""
        if self.interpreter_seconds is None or self.import_seconds is None:
            return None
        imported = self.interpreter_seconds + self.import_seconds - self.import_waited
        return imported + self.load_seconds - self.load_waited

    def named_by(self, loaded: LoadedManifest) -> Predictor:
        """Return the predictor with the manifest's names of its inputs and outputs.

        Raises OutputError where the model has none at a position.
        """
        inputs, own_inputs = named_tensors(loaded, "inputs", self.inputs)
        outputs, own_outputs = named_tensors(loaded, "outputs", self.outputs)
        return replace(
            self, inputs=inputs, outputs=outputs, own_inputs=own_inputs, own_outputs=own_outputs
        )

    def predict(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch of arrays by input name; return arrays by output name.

        Raises AgentError.
        """
        batch = self._batch(arrays)
        found = self._named(self.agent.request("predict", arrays=batch).arrays)
        with self.agent.checking("predict"):
            check_outputs(self.outputs, found)
        return found

    def run(
        self,
        scenario: str,
        batches: Sequence[Mapping[str, Array]] = (),
        *,
        seconds: float,
        least: int,
        longest: float,
        idle: float = 0.0,
        order: Sequence[int] = (),
    ) -> ScenarioRun:
        """Time a scenario over ``batches``, or over the last run's where none are given.

        ``order`` has their numbers as calls use them in turn, () for each once.
        It ends once ``seconds`` and ``least`` calls are both reached, or after ``longest`` seconds.
        The power of the idle device is measured for ``idle`` seconds before, where it has a counter
        of energy. Raises AgentError.
        """
        fields: dict[str, Any] = {
            "scenario": scenario,
            "stop": {"seconds": seconds, "least": least, "longest": longest},
            "idle": idle,
        }
        if batches:
            fields.update(batches=len(batches), order=list(order))
        arrays = self._joined(batches)
        facts, named = self.agent.request("run", fields, arrays, seconds=longest + idle)
        with self.agent.checking("run"):
            record = read_record(RunReply, facts)
            times = take_times(named, _RUN_TIMES)
            made = len(times["start"])
            span = times["end"][-1] - times["start"][0]
            if made < min(least, CAPACITY) and span < longest / 2:
                raise ProtocolError(f"it made {made} calls of {least}, and stopped before its time")
            times.update(take_tokens(named, times, self.generates))
            named = self._named(named)
            check_outputs(self.outputs, named)
        return ScenarioRun(
            times=times,
            outputs=named,
            sha256=_digest(named),
            peak_bytes=record.peak_rss,
            bind_seconds=record.bind_seconds,
            energy=read_energy(record),
            grown=record.grown,
            busy=record.busy,
            device_memory=record.device_memory,
        )

    def last_outputs(self, batch: int) -> dict[str, Array]:
        """Call batch number ``batch`` of the last run once more, and return its outputs."""
        found = self._named(self.agent.request("outputs", {"batch": batch}).arrays)
        if found:
            with self.agent.checking("outputs"):
                check_outputs(self.outputs, found)
        return found

    def repeated_calls(self) -> RepeatedCalls:
        """Return the repeated calls of the turns since ``bind``. Raises AgentError."""
        kept: list[tuple[int, Mapping[str, Array]]] = []
        places: list[int] | None = None
        while True:
            facts, arrays = self.agent.request("repeats", {"place": len(kept)})
            with self.agent.checking("repeats"):
                record = read_record(RepeatsReply, facts)
                places = record.kept if places is None else places
                _check_same_list(record.kept, places)
                if not 0 <= record.differing <= record.calls:
                    raise ProtocolError(f"{record.differing} of {record.calls} calls differ")
                if len(kept) == len(places):
                    return RepeatedCalls(record.calls, record.differing, kept)
                outputs = self._named(arrays)
                check_outputs(self.outputs, outputs)
            kept.append((places[len(kept)], outputs))

    def load_run(self, batches: Sequence[Mapping[str, Array]], plan: LoadPlan) -> LoadRun:
        """Serve the queries of a plan, whose samples are places in ``batches``.

        Where no batches are given, the last load's are taken. Raises LoadLost where the
        agent ends or the framework fails, and LoadInterrupted at Ctrl-C; both have what was
        received.
        """
        from pytest_mlms.measure.agent.load import (
            LoadInterrupted,
            LoadLost,
            LoadRecords,
            request_fields,
            schedule_arrays,
        )

        records = LoadRecords(plan)
        fields = request_fields(plan, len(batches))
        arrays = [*schedule_arrays(plan), *self._joined(batches)]
        seconds = plan.longest + plan.idle_seconds

        def take_part(reply: Reply) -> None:
            records.add(reply.arrays)

        try:
            facts, named = self.agent.request("load_run", fields, arrays, seconds, take_part)
            with self.agent.checking("load_run"):
                record = read_record(LoadRunReply, facts)
                records.add(named)
                return records.run(record)
        except AgentError as error:
            raise LoadLost(error, records.run()) from error
        except KeyboardInterrupt as error:
            raise LoadInterrupted(records.run()) from error

    def served_calls(self, fair: int = 0) -> ServedCalls:
        """Return the calls of the last load, if any, with the few that tell most.

        With ``fair`` these are so many at even distances, half of them such that differ from most
        if there are so many. Raises AgentError.
        """
        told: list[ServedCall] = []
        samples: Sequence[Sequence[int]] = ()
        if "load_run" not in self.agent.took:
            return ServedCalls()
        while True:
            facts, arrays = self.agent.request("served", {"place": len(told), "fair": fair})
            with self.agent.checking("served"):
                record = read_record(ServedReply, facts)
                check_served(record)
                samples = record.samples if not told else samples
                _check_same_list(record.samples, samples)
                if len(told) == len(record.samples):
                    counts = record.calls, record.others, record.held, record.differing
                    return ServedCalls(told, *counts)
                outputs = self._named(arrays)
                check_outputs(self.outputs, outputs)
            place = len(told)
            told.append(
                ServedCall(record.samples[place], outputs, record.usual[place], record.picks[place])
            )

    def run_loadgen(
        self, batches: Sequence[Mapping[str, Array]], plan: LoadGenPlan
    ) -> dict[str, bytes]:
        """Let MLPerf's LoadGen send queries whose samples are ``batches``; return its logs by name.

        Raises Refused where the stack has no LoadGen, or where LoadGen refuses the settings.
        """
        arrays = self._joined(batches)
        fields = plan.request_fields(len(batches))
        facts, named = self.agent.request("loadgen", fields, arrays, plan.longest)
        with self.agent.checking("loadgen"):
            read_record(LoadGenReply, facts)
        return {name[len(LOG) :]: array.tobytes() for name, array in named.items()}

    def inner(self, arrays: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """Run one batch; return each layer's name and output, in the order in which they ran.

        Raises Refused where the framework can't tell.
        """
        reply = self.agent.request("inner", arrays=self._batch(arrays))
        return list(reply.arrays.items())

    def held_to(self, arrays: Mapping[str, Array], tokens: Array) -> dict[str, Array]:
        """Generate with the ``tokens`` of an answer (1 x n) given, and go on behind them.

        Returns the fields of ``Choice`` of each token. Raises Refused where it can't.
        """
        batch = [*self._batch(arrays), (ANSWER, tokens)]
        found = self.agent.request("inner", arrays=batch).arrays
        with self.agent.checking("inner"):
            shapes = {name: found[name].shape for name in Choice._fields if name in found}
            if len(shapes) < len(Choice._fields) or len({*shapes.values()}) > 1:
                raise ProtocolError(f"an answer that is held to tokens has {shapes}")
        return dict(found)

    def bind(
        self, batches: Sequence[Mapping[str, Array]], order: Sequence[int] = (), cycle: int = 0
    ) -> Clocks:
        """Prepare turns over ``batches``; return what the agent can measure of them.

        The first ``cycle`` of their ``order`` take turns, all where it is 0; any other is called by
        itself. Raises AgentError.
        """
        arrays = self._joined(batches)
        fields = {"batches": len(batches), "order": list(order), "cycle": cycle}
        facts = self.agent.request("bind", fields, arrays).facts
        with self.agent.checking("bind"):
            record = read_record(BindReply, facts)
        stoppable = record.stoppable and self.agent.own_pid is not None
        return Clocks(
            record.wait,
            record.device,
            stoppable,
            record.bind_seconds,
            record.energy,
            record.energy_seconds,
        )

    def hold(self, cores: Sequence[int]) -> None:
        """Hold the thread that makes the calls to these cores. Raises AgentError."""
        self.agent.request("hold", {"cores": list(cores)})

    def moved(self, places: Mapping[int, int]) -> tuple[Predictor, bool]:
        """Move all threads from cores to others, one for one; return the predictor there.

        Also return whether any was on other cores before. Raises AgentError.
        """
        facts = self.agent.request("move", {"places": list(places.items())}).facts
        with self.agent.checking("move"):
            record = read_record(MoveReply, facts)
        return replace(self, cores=tuple(record.cores or ())), record.were_beyond

    def idle(self, seconds: float) -> float:
        """Return the CPU seconds that the process takes while nothing is called for ``seconds``."""
        facts = self.agent.request("idle", {"seconds": seconds}, seconds=seconds).facts
        with self.agent.checking("idle"):
            return float(read_record(IdleReply, facts).cpu)

    def turn(
        self,
        count: int = 1,
        skip: int = 0,
        first: int = 0,
        *,
        outputs: bool = False,
        memory: bool = False,
    ) -> Turn:
        """Time ``count`` calls after ``skip`` untimed ones, from place ``first`` of the order on.

        With ``outputs`` it has the outputs of the call at ``first``, with ``memory`` the peaks of
        memory after the calls. Raises AgentError.
        """
        fields = {
            "count": count,
            "skip": skip,
            "first": first,
            "outputs": outputs,
            "memory": memory,
        }
        facts, arrays = self.agent.request("turn", fields)
        names = _DEVICE_TIMES if TIME + "device" in arrays else _RUN_TIMES
        with self.agent.checking("turn"):
            record = read_record(TurnReply, facts)
            times = take_times(arrays, names)
            if len(times["start"]) != min(max(count, 1), CAPACITY):
                raise ProtocolError(f"it timed {len(times['start'])} calls instead of {count}")
            times.update(take_tokens(arrays, times, self.generates))
            if memory and record.peak_rss is None:
                raise ProtocolError("there is no peak of memory")
            arrays = self._named(arrays)
            if outputs:
                check_outputs(self.outputs, arrays)
        return Turn(times, arrays, record.peak_rss, record.device_memory, record.event_times)

    def usage(self, collect: bool = False) -> UsageReply:
        """Return the memory of the process; with ``collect`` after Python's garbage was freed.

        Raises AgentError.
        """
        facts = self.agent.request("usage", {"collect": collect}).facts
        with self.agent.checking("usage"):
            return read_record(UsageReply, facts)

    def profile(self, batch: Mapping[str, Array], count: int) -> list[Profile]:
        """Return the profile of each of ``count`` calls, by the framework's profiler.

        Raises Refused where the framework has none.
        """
        arrays = self._batch(batch)
        facts = self.agent.request("profile", {"count": count}, arrays).facts
        with self.agent.checking("profile"):
            return read_record(ProfileReply, facts).profiles

    def peaks(self) -> dict[str, Any]:
        """Measure the operations and the bytes a second that the device reaches.

        Returns ``flops``, ``bytes`` and ``how`` they were measured. Raises Refused where the stack
        can't measure them.
        """
        facts = self.agent.request("peaks").facts
        with self.agent.checking("peaks"):
            return read_record(Peaks, facts)._asdict()

    def structure(self, shapes: Mapping[str, Sequence[int]]) -> Structure:
        """Return the model as a graph for inputs of these shapes.

        Raises Refused where the framework can't tell.
        """
        plain = {self.own_inputs.get(name, name): list(shape) for name, shape in shapes.items()}
        facts = self.agent.request("structure", {"shapes": plain}).facts
        with self.agent.checking("structure"):
            return read_record(Structure, facts)

    def trace(
        self,
        level: str,
        probes: Sequence[str],
        count: int,
        arrays: Mapping[str, Array],
        options: Mapping[str, Any],
        seconds: float,
    ) -> Reply:
        """Trace ``count`` calls with a batch, and make half as many without a probe.

        ``seconds`` is what the calls may take beside the time-out. mlms_predictors._run.tracing
        describes the reply. Raises AgentError.
        """
        fields = {
            "level": level,
            "probes": list(probes),
            "count": count,
            "plain": (count + 1) // 2,
            "options": options,
        }
        batch = self._batch(arrays)
        reply = self.agent.request("trace", fields, batch, seconds=seconds)
        with self.agent.checking("trace"):
            check_trace(read_record(TraceReply, reply.facts), reply.arrays)
        return reply

    def _joined(self, batches: Sequence[Mapping[str, Array]]) -> list[tuple[str, Array]]:
        """Return the arrays of all batches, one batch after the other."""
        joined: list[tuple[str, Array]] = []
        for batch in batches:
            joined += self._batch(batch)
        return joined

    def _batch(self, arrays: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """Return a batch in the model's order, with its own names."""
        batch = ordered_batch(self.inputs, arrays)
        return [(self.own_inputs.get(name, name), array) for name, array in batch]

    def _named(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return outputs under the manifest's names, which have the model's own."""
        names = {own: name for name, own in self.own_outputs.items()}
        return {names.get(own, own): array for own, array in outputs.items()}


def _check_same_list(found: Sequence[Any], before: Sequence[Any]) -> None:
    """Raise ProtocolError where a list that is taken one by one changes: it might have no end."""
    if list(found) != list(before):
        raise ProtocolError("the list of calls that are told changed meanwhile")


def _digest(outputs: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for array in outputs.values():
        digest.update(array.tobytes())
    return digest.hexdigest()


def bytes_above_load(predictor: Predictor, peak: int) -> int:
    """Return by how much a ``peak`` of memory is above what was held before the model was loaded.

    Both are bytes; it may be below 0 where a framework frees memory. Raises AgentError for a peak
    of less than half, as one in KiB is, which would meet any limit.
    """
    before = predictor.rss_before
    if 2 * peak < before:
        raise AgentError(
            f"the agent told a peak of {peak} bytes of memory, and {before} before the model was "
            f"loaded: both are to be bytes; see 'mlms agent check'"
        )
    return peak - before
