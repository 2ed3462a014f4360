"""The agent: reads a request, does it, replies; started by path as ``PYTHON worker.py PREDICTOR.py
[--cores 0,1]``.

It is not aware of statistics, thresholds, where files came from, retries, or pytest. Its channel is
private copies of standard input and output, taken before anything else runs; what the framework
then prints goes to standard error, which the pytest side keeps as the agent's log.
"""

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Python puts this folder first on the path, and frameworks must not find its files under their own
# names.
sys.path[:] = [
    entry
    for entry in sys.path
    if os.path.abspath(entry or ".") not in (_ROOT, os.path.join(_ROOT, "_run"))
]

import faulthandler  # noqa: E402
import functools  # noqa: E402
import hashlib  # noqa: E402
import importlib.util  # noqa: E402
import platform  # noqa: E402
import select  # noqa: E402
import signal  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402


def _import(name, path, folder=None):
    """Import the file ``path`` as module ``name``, without a place on sys.path where it could
    shadow a framework.
    """
    found = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=folder and [folder]
    )
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


_import("mlms_predictors", os.path.join(_ROOT, "__init__.py"), _ROOT)

from mlms_predictors._run import peaks, process, protocol, scenarios, tracing  # noqa: E402


class Worker:
    """What the agent holds between two requests: the predictor, what it has loaded, and calls bound
    to inputs.

    Each public method is a request.
    """

    def __init__(self, path):
        self._path = path
        self._predictor = None
        self._loaded = None
        self._calls = []
        self._device_time, self._device_seconds = None, []
        self._load_times = [0, 0]
        self._samples = scenarios.Samples()

    def hello(self, header, arrays):
        """Import the framework; reply with its versions, its devices, and the interpreter that runs
        it.
        """
        name = os.path.splitext(os.path.basename(self._path))[0]
        began = time.perf_counter()
        self._predictor = _import("mlms_predictors." + name, self._path)
        facts = {
            "protocol": protocol.VERSION,
            "python": platform.python_version(),
            "executable": sys.executable,
            "versions": self._predictor.versions(),
            "devices": self._predictor.devices(),
            "cores": process.cores(),
            "import_seconds": time.perf_counter() - began,
        }
        return facts, []

    def load(self, header, arrays):
        """Load a model; reply with the device and threads that it really uses, its signature, and
        what it took.
        """
        resettable, before = process.reset_peak_rss(), process.rss()
        queue = process.QueueWait()
        began, waited = time.perf_counter(), queue.read()
        options, allow_code = header.get("options", {}), header.get("allow_code", False)
        request = protocol.Load(
            header["files"], header["device"], header["threads"], options, allow_code
        )
        self._loaded = self._predictor.load(request)
        facts = self._loaded._replace(model=None)._asdict()
        ended = time.perf_counter()
        self._load_times = [int(began * 1e9), int(ended * 1e9)]
        facts.update(seconds=ended - began, waited=queue.read() - waited)
        facts.update(rss_before=before, peak_is_since_load=resettable)
        queue.close()
        return facts, []

    def predict(self, header, arrays):
        """Run one batch; reply with the outputs in the order of the model's signature."""
        return {}, self._named(self._predictor.predict(self._loaded, dict(arrays)))

    def run(self, header, arrays):
        """Run a scenario over the batches sent, or over those of the last run where none are.

        The reply has the raw times, the last outputs for the first batch, and a digest of the last
        ones for all.
        """
        if "batches" in header:
            self._calls = [self._bind(dict(batch)) for batch in _grouped(arrays, header["batches"])]
        scenarios.SCENARIOS[header["scenario"]](
            self._calls, scenarios.Stop(**header["stop"]), self._samples
        )
        reached = [output for output in self._samples.outputs if output is not None]
        facts = {"peak_rss": process.peak_rss(), "output_sha256": _digest(reached)}
        return facts, _as_numpy(self._samples.arrays()) + self._named(reached[0])

    def bind(self, header, arrays):
        """Bind calls to the batches sent, for turns; reply with the clocks they have, and whether
        this may be stopped.

        A process that is stopped while another has its turn must not outlive the one that would
        continue it.
        """
        self._calls = [self._bind(dict(batch)) for batch in _grouped(arrays, header["batches"])]
        on_device = self._loaded.device != "cpu"
        self._device_time = getattr(self._predictor, "device_seconds", None) if on_device else None
        if self._device_time:
            self._calls = [functools.partial(self._on_device, call) for call in self._calls]
        queue = process.QueueWait()
        queue.close()
        facts = {
            "wait": queue.available,
            "device": bool(self._device_time),
            "stoppable": process.wake_with_parents_end(),
        }
        return facts, []

    def hold(self, header, arrays):
        """Hold the thread that makes the calls to these cores.

        The framework's own threads stay where they are.
        """
        process.use_cores(header["cores"])
        return {}, []

    def turn(self, header, arrays):
        """Make a few calls and reply with their raw times.

        With the last outputs and the peak of memory on demand.
        """
        self._device_seconds = []
        scenarios.turn(self._calls, header["first"], header["skip"], header["count"], self._samples)
        times = self._samples.arrays()
        if self._device_time:
            times.append(("device", scenarios.seconds(self._device_seconds[header["skip"] :])))
        outputs = self._named(self._samples.outputs[0]) if header["outputs"] else []
        return {"peak_rss": process.peak_rss() if outputs else None}, _as_numpy(times) + outputs

    def _on_device(self, call):
        output = call()
        self._device_seconds.append(self._device_time(self._loaded))
        return output

    def profile(self, header, arrays):
        """Run one batch ``count`` times under the framework's own profiler.

        Reply with each call's layers.
        """
        self._optional("layers")
        profiles = self._profiles(dict(arrays))(header["count"])
        return {
            "profiles": [[p.start, p.end, [list(layer) for layer in p.layers]] for p in profiles]
        }, []

    def trace(self, header, arrays):
        """Run one batch ``count`` times under the probes named, and ``plain`` times without before
        and after.

        The reply says of each probe whether it watched and, if not, why; its spans and counters are
        columns.
        """
        batch = dict(arrays)
        subject = tracing.WatchedModel(
            self._bind(batch), self._profiles(batch), self._loaded.device
        )
        fields = [header[name] for name in ("level", "probes", "count", "plain", "options")]
        facts, columns = tracing.as_reply(tracing.watch(subject, *fields))
        return dict(facts, load=self._load_times), columns

    def peaks(self, header, arrays):
        """Measure what the device can do at best, for rooflines."""
        return peaks.peaks(self._loaded.device, self._loaded.threads), []

    def inner(self, header, arrays):
        """Run one batch; reply with what each layer gave, by its name, in the order in which they
        ran.
        """
        return {}, self._optional("inner")(self._loaded, dict(arrays))

    def structure(self, header, arrays):
        """Reply with the model as a graph, for inputs of these shapes.

        What is loaded stays as it is.
        """
        shapes = {name: tuple(shape) for name, shape in header["shapes"].items()}
        return self._optional("structure")(self._loaded, shapes)._asdict(), []

    def unload(self, header, arrays):
        """Drop the model and everything bound to it."""
        close = getattr(self._predictor, "close", None)
        if close and self._loaded:
            close(self._loaded)
        self._loaded, self._calls = None, []
        return {}, []

    def _profiles(self, batch):
        """Return a function that profiles so many calls, in one session of the framework's if it
        can; or None.
        """
        layers, profiles = (getattr(self._predictor, name, None) for name in ("layers", "profiles"))
        if profiles:
            return functools.partial(profiles, self._loaded, batch)
        return layers and (lambda count: [layers(self._loaded, batch) for _ in range(count)])

    def _optional(self, name):
        """Return a function that not every framework can offer."""
        function = getattr(self._predictor, name, None)
        if function is None:
            raise NotImplementedError("%s has no %r" % (os.path.basename(self._path), name))
        return function

    def _bind(self, arrays):
        bind = getattr(self._predictor, "bind", None)
        return (
            bind(self._loaded, arrays)
            if bind
            else functools.partial(self._predictor.predict, self._loaded, arrays)
        )

    def _named(self, outputs):
        return [(tensor.name, array) for tensor, array in zip(self._loaded.outputs, outputs)]


_REQUESTS = [name for name in vars(Worker) if not name.startswith("_")]


def _grouped(arrays, count):
    size = len(arrays) // count
    return [arrays[index * size : (index + 1) * size] for index in range(count)]


def _as_numpy(buffers):
    import numpy

    return [(name, numpy.frombuffer(values)) for name, values in buffers]


def _digest(batches):
    digest = hashlib.sha256()
    for outputs in batches:
        for array in outputs:
            digest.update(array.tobytes())
    return digest.hexdigest()


def _take_channel():
    """Keep standard input and output for frames.

    Give the framework /dev/null and standard error instead.
    """
    requests, replies = os.fdopen(os.dup(0), "rb", 1 << 16), os.fdopen(os.dup(1), "wb", 0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return requests, replies


def _die_with(requests):
    """End this process and its children once the other end of ``requests`` is gone, also in
    mid-request.
    """

    def watch():
        poll = select.poll()
        poll.register(requests, 0)  # no events asked for: only the hang-up is reported
        while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
            pass
        _end_all()

    threading.Thread(target=watch, daemon=True).start()


def _end_all():
    """End this process and, where it leads a group, what it started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _write(replies, buffers):
    for buffer in buffers:
        view = memoryview(buffer)
        while view:
            view = view[replies.write(view) :]


def _answer(worker, header, arrays):
    """Do one request and return the frame of its reply.

    Whatever a framework raises is a reply too.
    """
    try:
        if header["type"] not in _REQUESTS:
            raise ValueError(
                "no request %r; this agent knows %s" % (header["type"], ", ".join(_REQUESTS))
            )
        facts, outputs = getattr(worker, header["type"])(header, arrays)
        return protocol.encode(dict(facts, type=header["type"]), outputs)
    except (Exception, SystemExit) as error:
        if not isinstance(error, NotImplementedError):
            sys.stderr.write(traceback.format_exc())
            sys.stderr.flush()
        name = (
            "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        )  # numpy has one of its own
        return protocol.encode({"type": "error", "error": name, "message": str(error)})


def main():
    """Serve requests until ``bye`` or the end of the input."""
    requests, replies = _take_channel()
    if "--cores" in sys.argv:  # before anything starts a thread, which would keep the old ones
        process.use_cores(
            [int(core) for core in sys.argv[sys.argv.index("--cores") + 1].split(",")]
        )
    faulthandler.enable(
        all_threads=False
    )  # a crash in native code leaves the Python stack in the log
    _die_with(requests)
    worker = Worker(sys.argv[1])
    while True:
        try:
            header, arrays = protocol.read_frame(requests)
        except EOFError:  # the other end is gone; whichever of two threads sees that first
            _end_all()
        if header["type"] == "bye":
            break
        _write(replies, _answer(worker, header, arrays))
    os._exit(0)  # a framework's exit handlers may hang or crash, and there is nothing left to lose


if __name__ == "__main__":
    main()
