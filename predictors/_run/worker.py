"""The agent: a process that runs a predictor for the pytest side, one request at a time.

It is started by path, as ``PYTHON worker.py PREDICTOR.py [--cores 0,1]``, in the interpreter of a
stack. Its log is its standard error; see channel.py. On Linux it is the child of the process that
was started; see supervisor.py.

The agent is NOT aware of

- statistics: it returns raw times, outputs and readings, and computes nothing from them;
- thresholds, verdicts, and which of two stacks is the candidate;
- accuracy and data sets: its inputs are arrays that are ready for the model;
- manifests, and where files came from: it gets local paths;
- retries, time-outs and other agents: the pytest side ends a process that takes too long;
- distribution over hosts, and locks on devices;
- pytest.
"""

import os
import sys
import time

_BEGAN = time.monotonic()
"""The time when the interpreter had started: the agent's own files, which users don't have, follow.

They are compiled at each start on another Python than the one that installed them.
"""

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Python puts this folder first on the path. Frameworks must not find its files by their own names.
_OWN_FOLDERS = (_ROOT, os.path.join(_ROOT, "_run"))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") not in _OWN_FOLDERS]

import faulthandler  # noqa: E402
import functools  # noqa: E402
import importlib.util  # noqa: E402
import platform  # noqa: E402
import traceback  # noqa: E402
from typing import Any, Callable, Dict, List, NamedTuple, Optional  # noqa: E402


def _import_file(name: str, path: str, folder: Optional[str] = None) -> Any:
    """Import the file ``path`` as module ``name``.

    No folder of it gets a place on sys.path, where it could shadow a framework.
    """
    folders = None if folder is None else [folder]
    spec: Any = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=folders
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_import_file("mlms_predictors", os.path.join(_ROOT, "__init__.py"), _ROOT)

from mlms_predictors._run import peaks, pictures, process, scenarios, tracing  # noqa: E402
from mlms_predictors._run.channel import (  # noqa: E402
    AgentChannel,
    HangUpMonitor,
    end_all,
    take_channel,
)
from mlms_predictors._run.device_memory import DeviceMemory  # noqa: E402
from mlms_predictors._run.embedded_code import Element, EmbeddedCode, Text  # noqa: E402
from mlms_predictors._run.energy import EnergyMeter  # noqa: E402
from mlms_predictors._run.generation import TokenClock, generating  # noqa: E402
from mlms_predictors._run.gpus import l2_bytes  # noqa: E402
from mlms_predictors._run.instances import Instances, Library  # noqa: E402
from mlms_predictors._run.interface import Functions, functions_of  # noqa: E402
from mlms_predictors._run.load_request import (  # noqa: E402
    SCHEDULED,
    SendPart,
    answer_load,
    check_batches,
    request_of,
    sizes_of,
    take_library,
)
from mlms_predictors._run.loadgen import (  # noqa: E402
    LoadGenRequest,
    import_loadgen,
    run_loadgen,
)
from mlms_predictors._run.protocol import (  # noqa: E402
    TIME,
    VERSION,
    Generation,
    Load,
    Loaded,
    NamedArrays,
    OutgoingReply,
    encode,
    holds_texts,
    read_frame,
    text_array,
)
from mlms_predictors._run.repeats import Repeats  # noqa: E402
from mlms_predictors._run.replies import (  # noqa: E402
    BindReply,
    HelloReply,
    IdleReply,
    LoadGenReply,
    LoadReply,
    MoveReply,
    RepeatsReply,
    RunReply,
    ServedReply,
    TurnReply,
    UsageReply,
    make_reply,
)
from mlms_predictors._run.served import LoadCalls  # noqa: E402
from mlms_predictors._run.supervisor import start_supervised  # noqa: E402
from mlms_predictors._run.trace_reply import trace_reply  # noqa: E402

_LONGEST_MESSAGE = 1 << 16  # characters of an error

Header = Dict[str, Any]
"""The fields of a request."""


class Worker:
    """The state of the agent between two requests, and a method for each request.

    A method takes the header and the arrays of its request. It returns the reply, or raises what
    the framework raised.
    """

    def __init__(self, path: str, supervised: bool = False):
        self._path = path
        self._supervised = supervised
        self._plain: Optional[Functions] = None
        self._functions: Optional[Functions] = None
        self._current: Optional[Loaded] = None
        self._code: Optional[EmbeddedCode] = None
        self._calls: List[Callable[[], Any]] = []
        self._bound: List[Callable[[], Any]] = []
        self._cycle = 0
        self._first_batch: Dict[str, Any] = {}
        self._device_clock: Optional[_DeviceClock] = None
        self._token_clock: Optional[TokenClock] = None
        self._load_times = _LoadTimes(0, 0)
        self._samples = scenarios.Samples()
        self._repeats = Repeats()
        self._instances: Optional[Instances] = None
        self._library: Library = []
        self._served = LoadCalls([])
        self._model_bytes = 0
        self._peak = process.PeakMemory()
        self._on_device = DeviceMemory("cpu")
        # Sends a part of the reply to a request, before the reply itself.
        self.send: Optional[Callable[[Header, NamedArrays], None]] = None

    def hello(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Import the framework; reply with its versions and devices, and the interpreter."""
        name = os.path.splitext(os.path.basename(self._path))[0]
        queue = process.QueueWait(of_others=True)
        began = time.monotonic()
        waited_before = queue.read()
        module = _import_file("mlms_predictors." + name, self._path)
        self._plain = self._functions = functions_of(module)
        versions = self._functions.versions()
        devices = self._functions.devices()
        waited = queue.read() - waited_before
        queue.close()
        record = HelloReply(
            protocol=VERSION,
            process=os.getpid(),
            python=platform.python_version(),
            executable=sys.executable,
            versions=versions,
            devices=devices,
            cores=process.cores(),
            ready=_BEGAN,
            import_seconds=time.monotonic() - began,
            import_waited=waited,
            requests=list(REQUESTS),
        )
        return make_reply(record)

    def load(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Load a model instead of the one before, which is freed first.

        Reply with the device and threads that it really uses, its signature, and what it took.
        """
        self.close()
        request = Load(
            header["files"],
            header["device"],
            header["threads"],
            header.get("options", {}),
            header.get("allow_code", False),
            header.get("server"),
            Generation(**header["generation"]) if header.get("generation") else None,
        )
        self._functions = self._plain
        if request.generation is not None:
            self._functions = generating(self._predictor, request.generation)
        self._on_device = DeviceMemory(request.device)
        resettable = self._peak.begin()
        rss_before = self._peak.held
        queue = process.QueueWait(of_others=True)
        began = time.perf_counter()
        waited_before = queue.read()
        loaded = self._predictor.load(request)
        waited = queue.read() - waited_before
        if loaded.server is not None:  # while it started, this process only looked for it
            waited = 0.0
        ended = time.perf_counter()
        queue.close()
        self._current = loaded
        self._token_clock = TokenClock() if request.generation is not None else None
        self._on_device.count = functools.partial(self._predictor.device_memory, loaded)
        self._on_device.read()
        self._instances = Instances(self._predictor, loaded, request, self._on_device)
        process.watch_server(loaded.server)
        if process.has_server():  # all that it holds is the model's
            self._peak = process.PeakMemory()
            rss_before = 0
        self._peak.read()
        self._model_bytes = max(0, self._peak.held - rss_before)
        self._load_times = _LoadTimes(int(began * 1e9), int(ended * 1e9))
        record = LoadReply(
            device=loaded.device,
            threads=loaded.threads,
            inputs=loaded.inputs,
            outputs=loaded.outputs,
            seconds=ended - began,
            waited=waited,
            rss_before=rss_before,
            peak_is_since_load=resettable,
            default_output=loaded.default_output,
            l2_bytes=l2_bytes(loaded.device),
            device_facts=loaded.device_facts,
            unmeasured=_unmeasured(),
        )
        return make_reply(record)

    def predict(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Run one batch; reply with the outputs in the order of the model's signature."""
        outputs = self._predictor.predict(self._loaded, dict(arrays))
        return OutgoingReply({}, self._named(outputs))

    def run(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Run a scenario over the batches sent, or over the last run's if there are none.

        Reply with the raw times, and with the last outputs for the first batch.
        """
        process.find_processes()
        meter = EnergyMeter(self._loaded.device)
        idle_watts = meter.idle_watts(header.get("idle", 0.0))
        bind_seconds = 0.0
        if "batches" in header:
            bind_seconds = self._bind_all(header, arrays)
        run_scenario = scenarios.SCENARIOS[header["scenario"]]
        threads = process.BusyThreads()
        held = self._held()
        self._token_rows()  # of calls that failed, or were not timed
        meter.begin()
        run_scenario(self._calls, scenarios.Stop(**header["stop"]), self._samples)
        joules = meter.joules()
        grown = max(after - before for before, after in zip(held, self._held()))
        busy = threads.count()
        meter.close()
        first = self._named(self._samples.outputs[0])
        record = RunReply(
            peak_rss=self._peak.read(),
            bind_seconds=bind_seconds,
            joules=joules,
            idle_watts=idle_watts,
            energy_missing=meter.missing,
            grown=grown,
            busy=busy,
            energy_period=meter.period,
            device_memory=self._on_device.read(),
        )
        if self._device_clock is not None:
            self._device_clock.seconds = []
        times = self._samples.arrays() + self._token_rows()
        return make_reply(record, _as_numpy(times) + first)

    def outputs(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Call a batch of the last run once more, and reply with its outputs."""
        return OutgoingReply({}, self._named(self._bound[header["batch"]]()))

    def bind(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Bind calls to the batches sent, for turns.

        Reply with the clocks that turns will have, and whether this process may be stopped while
        another has its turn: that takes a supervisor, who continues it when pytest ends.
        """
        bind_seconds = self._bind_all(header, arrays)
        self._repeats = Repeats()
        self._device_clock = None
        device_seconds = self._predictor.device_seconds
        if device_seconds is not None and self._loaded.device != "cpu":
            self._device_clock = _DeviceClock(device_seconds, self._loaded)
            self._calls = [self._device_clock.timed(call) for call in self._calls]
        queue = process.QueueWait()
        queue.close()
        meter = EnergyMeter(self._loaded.device)
        meter.close()
        record = BindReply(
            wait=queue.available,
            device=self._device_clock is not None,
            stoppable=self._supervised,
            bind_seconds=bind_seconds,
            energy=not meter.missing,
            energy_seconds=meter.shortest,
        )
        return make_reply(record)

    def hold(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Hold the thread that makes the calls to these cores.

        The framework's own threads stay where they are.
        """
        process.use_cores(header["cores"])
        return OutgoingReply({}, [])

    def move(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Move all threads of this process and its children by pairs of cores, from and to."""
        were_beyond = process.move_threads(dict(header["places"]))
        return make_reply(MoveReply(process.cores(), were_beyond))

    def idle(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Call nothing for some seconds; reply with the CPU time that other threads take."""
        process.find_processes()
        before = process.cpu_time()
        time.sleep(header["seconds"])
        return make_reply(IdleReply(process.cpu_time() - before))

    def turn(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Make a few calls and reply with their raw times.

        The last outputs come with them if ``outputs`` is set, and the peaks of memory, which take
        some milliseconds to read, if ``memory`` is, with the times of two kinds of calls by events.
        """
        process.find_processes()
        clock = self._device_clock
        if clock is not None:
            clock.seconds = []
        request = scenarios.TurnRequest(
            header["first"], header["skip"], header["count"], self._cycle
        )
        self._samples.holds_first = header["outputs"]
        self._token_rows()  # of calls that failed, or were not timed
        scenarios.turn(self._calls, request, self._samples)
        if not request.is_single(self._calls):
            self._repeats.add(request.first, self._samples.of_turn(self._cycle))
        times = self._samples.arrays()
        if clock is not None:
            times.append(("device", scenarios.seconds(clock.seconds[request.skip :])))
        times += self._token_rows(request.skip)
        record = TurnReply(None)
        if header.get("memory"):
            record = TurnReply(self._peak.read(), self._on_device.read(), self._event_times())
        outputs = self._named(self._samples.outputs[0]) if header["outputs"] else []
        return make_reply(record, _as_numpy(times) + outputs)

    def usage(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Reply with what the process holds, after Python's garbage was freed where asked."""
        if process.unseen():
            raise NotImplementedError("memory isn't seen: " + process.unseen())
        process.find_processes()
        if header["collect"]:
            process.collect_garbage()
        record = UsageReply(
            memory=process.own_memory(),
            allocated=process.allocated_memory(),
            device_memory=self._on_device.now(),
            threads=process.count_threads(),
            descriptors=process.count_descriptors(),
        )
        return make_reply(record)

    def repeats(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Reply with what the turns since ``bind`` say of repeated calls on the same batch.

        The outputs that are kept under the number ``place`` come with it.
        """
        kept = self._repeats.kept
        record = RepeatsReply(
            self._repeats.calls, self._repeats.differing, [batch for batch, _ in kept]
        )
        place = header["place"]
        return make_reply(record, self._named(kept[place][1]) if place < len(kept) else [])

    def load_run(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Serve queries by instances of the model, as they arrive or one after the other.

        Reply with the records of the queries, in parts.
        """
        process.find_processes()
        request = request_of(header)
        schedule, library = take_library(request, arrays)
        self._library = library or self._library
        if not self._library:
            raise ValueError("there are no samples; send some with the first load of a model")
        check_batches(self._loaded.inputs, self._library, request)
        instances = self._pool
        instances.load(request.instances, request.available, self._model_bytes)
        sizes = sizes_of(request, len(schedule.get(SCHEDULED, ())))
        instances.run(lambda instance: instance.prepare(self._library, sizes))
        send = self._part_sender(header)
        self._served = LoadCalls([])
        library = self._library
        reply, self._served = answer_load(instances, library, request, schedule, send, self._peak)
        return reply

    def served(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Reply with a few calls of the last load: those that tell most, or ``fair`` even ones.

        The outputs of the one with the number ``place`` come with it.
        """
        calls = self._served
        fair = header.get("fair")
        told = calls.fair(fair) if fair else calls.most_telling()
        record = ServedReply(
            samples=[[int(sample) for sample in one.samples] for one in told],
            usual=[one.usual for one in told],
            picks=[one.picks for one in told],
            calls=calls.count,
            others=calls.others,
            held=calls.held,
            differing=calls.differing,
        )
        place = header["place"]
        return make_reply(record, self._named(told[place].outputs) if place < len(told) else [])

    def loadgen(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Let MLPerf's LoadGen send queries to instances of the model; reply with its logs."""
        module = import_loadgen(sys.executable)
        request = request_of(header)
        _, self._library = take_library(request, arrays)
        check_batches(self._loaded.inputs, self._library, request)
        instances = self._pool
        instances.load(request.instances, request.available, self._model_bytes)
        sizes = sizes_of(request, request.most)
        instances.run(lambda instance: instance.prepare(self._library, sizes))
        run = LoadGenRequest(
            scenario=header["scenario"],
            mode=header["mode"],
            settings=header["settings"],
            most=request.most,
            max_delay=request.max_delay,
        )
        logs = run_loadgen(module, instances, len(self._library), run)
        return make_reply(LoadGenReply(self._peak.read()), logs)

    def profile(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Run one batch ``count`` times under the framework's own profiler.

        Reply with the layers of each call.
        """
        profiles = self._predictor.profiles(self._loaded, dict(arrays), header["count"])
        if any(profile.of_launches for profile in profiles):
            raise RuntimeError(tracing.LAUNCHES_ONLY)
        return OutgoingReply({"profiles": [profile[:3] for profile in profiles]}, [])

    def trace(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Run one batch under the probes named, and without them before and after.

        Reply with the status of each probe, and with spans and counters as columns.
        """
        if process.has_server():
            raise NotImplementedError("a server isn't traced: its work is in other processes")
        batch = dict(arrays)
        profiles = None
        if self._predictor.has_layers:
            profiles = functools.partial(self._predictor.profiles, self._loaded, batch)
        call = self._predictor.bind(self._loaded, batch)
        takes_cupti = self._predictor.takes_cupti(self._loaded)
        model = tracing.TracedModel(call, profiles, self._loaded.device, takes_cupti)
        request = tracing.TraceRequest(
            level=header["level"],
            probes=header["probes"],
            observed=header["count"],
            plain=header["plain"],
            options=header["options"],
        )
        fields, columns = trace_reply(tracing.trace(model, request))
        return OutgoingReply(dict(fields, load=self._load_times), columns)

    def peaks(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Measure what the device can do at best, for rooflines."""
        loaded = self._loaded
        types = [tensor.dtype for tensor in loaded.inputs if "float" in tensor.dtype]
        dtype = types[0] if types else "float32"
        return make_reply(peaks.measure_peaks(loaded.device, loaded.threads, dtype))

    def inner(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Run one batch; reply with what each layer gave, by name, in the order they ran."""
        return OutgoingReply({}, self._predictor.inner(self._loaded, dict(arrays)))

    def structure(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Reply with the model as a graph, for inputs of these shapes.

        The loaded model stays as it is.
        """
        shapes = {name: tuple(shape) for name, shape in header["shapes"].items()}
        return make_reply(self._predictor.structure(self._loaded, shapes))

    def open_code(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Run the Python that a manifest embeds, which defines its functions."""
        texts = [Text(text, line) for text, line in header["texts"]]
        self._code = EmbeddedCode(header["path"], texts)
        return OutgoingReply({}, [])

    def preprocess(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Reply with the inputs that embedded code makes of elements, by their number."""
        elements = []
        for (index, suffix), (_, content) in zip(header["elements"], arrays):
            elements.append(Element(index, suffix, content.tobytes()))
        return OutgoingReply({}, _numbered(self._embedded.preprocess(elements)))

    def postprocess(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Reply with what embedded code makes of the outputs sent."""
        outputs = [array for _, array in arrays]
        return OutgoingReply({}, _numbered([self._embedded.postprocess(outputs)]))

    def decode(self, header: Header, arrays: NamedArrays) -> OutgoingReply:
        """Reply with the pixels of the encoded picture sent, by this interpreter's Pillow."""
        ((_, content),) = arrays
        how = header["mode"], header["upright"], header["steps"]
        return OutgoingReply({}, _numbered([pictures.decode(content.tobytes(), *how)]))

    def close(self) -> None:
        """Free the loaded model, if there is one; an error of that goes to the log only."""
        if self._current is None:
            return
        loaded = self._current
        self._current = None
        self._calls = []
        self._bound = []
        self._first_batch = {}
        self._device_clock = None
        self._samples.clear()
        self._library = []
        self._served = LoadCalls([])
        process.watch_server(None)
        try:
            self._pool.close()
            self._predictor.close(loaded)
        except (Exception, SystemExit):
            _log_error()

    @property
    def _predictor(self) -> Functions:
        if self._functions is None:
            raise RuntimeError("the framework is not imported; request 'hello' first")
        return self._functions

    @property
    def _embedded(self) -> EmbeddedCode:
        if self._code is None:
            raise RuntimeError("there is no code; request 'open_code' first")
        return self._code

    @property
    def _loaded(self) -> Loaded:
        if self._current is None:
            raise RuntimeError("no model is loaded; request 'load' first")
        return self._current

    @property
    def _pool(self) -> Instances:
        if self._instances is None:
            raise RuntimeError("no model is loaded; request 'load' first")
        return self._instances

    def _held(self):
        """Return the bytes that the process and its device hold, and those that malloc gave out.

        A server's allocations aren't told. The times of tokens are no part of either.
        """
        on_device = self._on_device.now() or 0
        held = process.own_memory() + on_device
        if process.has_server():
            return (held,)
        ours = self._token_clock.nbytes if self._token_clock is not None else 0
        return held - ours, process.allocated_memory() - ours

    def _event_times(self):
        """Return the seconds of calls on the first batch by events; None where there are none."""
        if self._device_clock is None or self._predictor.event_times is None:
            return None
        return self._predictor.event_times(self._loaded, self._first_batch)

    def _token_rows(self, skip=0):
        """Return the times of the tokens of the calls since the last time, but ``skip`` first."""
        return self._token_clock.rows(skip) if self._token_clock is not None else []

    def _part_sender(self, header: Header) -> Optional[SendPart]:
        """Return a function that sends a part of the reply to a request."""
        send = self.send
        if send is None:
            return None
        fields = {"type": header["type"], "number": header["number"], "part": True}
        return functools.partial(send, fields)

    def _bind_all(self, header, arrays):
        """Bind a call to each of the batches, whose arrays follow one another.

        The first ``cycle`` of the calls, all where it is 0, take turns in their ``order``, which
        has a batch more than once where it stands for more inputs. Return the seconds that the
        first one took, in which a framework may compile the model.
        """
        batches = header["batches"]
        size = len(arrays) // batches
        self._calls = []
        self._samples.clear()
        self._first_batch = dict(arrays[:size])
        bind_seconds = 0.0
        for first in range(0, batches * size, size):
            batch = dict(arrays[first : first + size])
            began = time.perf_counter()
            self._calls.append(self._predictor.bind(self._loaded, batch))
            bind_seconds = bind_seconds or time.perf_counter() - began
        if self._token_clock is not None:
            self._calls = [self._token_clock.timed(call) for call in self._calls]
        self._bound = self._calls
        self._calls = [self._bound[number] for number in header.get("order") or range(batches)]
        self._cycle = header.get("cycle") or len(self._calls)
        return bind_seconds

    def _named(self, outputs):
        """Return outputs with their names; raises TypeError where one has none, or is no array."""
        known = self._loaded.outputs
        if len(outputs) > len(known):
            names = ", ".join(tensor.name for tensor in known)
            message = "the model gives %d outputs, and its signature has %d (%s); name all of them"
            raise TypeError(message % (len(outputs), len(known), names))
        named = []
        for tensor, output in zip(known, outputs):
            array = text_array(output) if holds_texts(output) else output
            if not hasattr(array, "dtype"):
                message = "output %r is a %s, not an array; convert the model so that it is one"
                raise TypeError(message % (tensor.name, type(output).__name__))
            named.append((tensor.name, array))
        return named


def _unmeasured():
    """Return the reason of each quantity that can't be measured of a model, by name."""
    found = {}
    if process.has_server():
        found["import_memory"] = "a server is measured as a whole"
    if process.unseen():
        found.update(dict.fromkeys(_OF_PROCESSES, process.unseen()))
    return found


_OF_PROCESSES = (
    "peak_memory",
    "memory_growth",
    "start_time",
    "load_time",
    "first_inference",
    "warm_up_time",
    "cpu_time",
    "idle_cpu",
)
"""Quantities of processes, or of their beginning, which a server that isn't ours doesn't tell."""

REQUESTS = (
    "hello",
    "load",
    "predict",
    "run",
    "outputs",
    "bind",
    "hold",
    "move",
    "turn",
    "usage",
    "repeats",
    "idle",
    "load_run",
    "served",
    "loadgen",
    "profile",
    "trace",
    "peaks",
    "inner",
    "structure",
    "open_code",
    "preprocess",
    "postprocess",
    "decode",
)
"""The requests beside ``bye``, which ends the agent."""


class _LoadTimes(NamedTuple):
    """Start and end of the last load, in nanoseconds of time.perf_counter."""

    start: int
    end: int


class _DeviceClock:
    """The times of calls by the device's own events, in seconds."""

    def __init__(self, device_seconds: Callable[[Loaded], float], loaded: Loaded):
        self.seconds: List[float] = []
        self._device_seconds = device_seconds
        self._loaded = loaded

    def timed(self, call):
        """Return the call with a time added to ``seconds`` each time."""
        return functools.partial(self._run, call)

    def _run(self, call):
        output = call()
        self.seconds.append(self._device_seconds(self._loaded))
        return output


def _as_numpy(buffers):
    """Return times as arrays whose names no output of a model has."""
    import numpy

    return [(TIME + name, numpy.frombuffer(values)) for name, values in buffers]


def _numbered(arrays):
    """Return arrays with their numbers as names."""
    return [(str(number), array) for number, array in enumerate(arrays)]


def _log_error():
    sys.stderr.write(traceback.format_exc())
    sys.stderr.flush()


def _answer(worker, header, arrays):
    """Do one request and return the frame of its reply; what a framework raises is a reply, too."""
    kind = header["type"]
    number = header.get("number")
    try:
        if kind not in REQUESTS:
            text = "no request %r; this agent knows %s"
            raise NotImplementedError(text % (kind, ", ".join(REQUESTS)))
        reply = getattr(worker, kind)(header, arrays)
        return encode(dict(reply.fields, type=kind, number=number), reply.arrays)
    except (Exception, SystemExit) as error:
        if not isinstance(error, NotImplementedError):
            _log_error()
        fields = {"type": "error", "error": _error_name(error), "message": _message_of(error)}
        return encode(dict(fields, number=number))


def _error_name(error):
    """Return the name of an error's class; numpy has a MemoryError of its own."""
    return "MemoryError" if isinstance(error, MemoryError) else type(error).__name__


def _message_of(error):
    """Return the text of an error, which may be unable to give one."""
    try:
        return str(error).strip()[:_LONGEST_MESSAGE]  # readers take its first line
    except Exception as another:
        return "its text raised %s" % type(another).__name__


def _serve(worker: Worker, channel: AgentChannel) -> bool:
    """Serve requests until ``bye``; the end of the input ends the process.

    Return whether the process is to leave as programs do.
    """
    monitor = HangUpMonitor(channel.requests)

    def send(fields: Header, arrays: NamedArrays) -> None:
        channel.write(encode(fields, arrays))

    worker.send = send
    while True:
        try:
            header, arrays = read_frame(channel.requests)
            if header["type"] == "bye":
                worker.close()
                return bool(header.get("leave"))
            monitor.busy = True
            frame = _answer(worker, header, arrays)
            monitor.busy = False
            channel.write(frame)
        except (EOFError, BrokenPipeError):  # the other end is gone
            worker.close()
            end_all()


def main() -> None:
    """Run the agent, in which cuda:N is the GPU that pytest locks and watches by that name."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML does; CUDA's own is the fastest first
    supervised = start_supervised()
    channel = take_channel()
    if "--cores" in sys.argv:  # before anything starts a thread, which would keep the old ones
        cores = sys.argv[sys.argv.index("--cores") + 1]
        process.use_cores([int(core) for core in cores.split(",")])
    faulthandler.enable(all_threads=False)  # a crash leaves the Python stack in the log
    if _serve(Worker(sys.argv[1], supervised), channel):
        return
    os._exit(0)  # a framework's exit handlers may hang or crash


if __name__ == "__main__":
    main()
