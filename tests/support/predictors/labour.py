"""A predictor that works as much as the environment says, for stacks that differ by their env.

Its process has clocks of its own. They count the work and the sleep, however busy the machine is;
LABOUR_CLOCK=real leaves it those of the machine.

LABOUR_WORK     units of work of a call, a millisecond each (default 1)
LABOUR_UNIT     seconds of a unit of work (default 0.001)
LABOUR_LATE     the call from which on each has three times the work
LABOUR_SLEEP    seconds that a call sleeps
LABOUR_EARLY    seconds that the calls 2 to 10 sleep
LABOUR_LEAK     bytes that a call leaks
LABOUR_IMPORT   seconds that importing the framework takes, of the machine's clock
LABOUR_HOARD    MiB that the model takes
LABOUR_SLOW     seconds that loading sleeps
LABOUR_EVENTS   seconds that the predictor's own device says each call took
LABOUR_AHEAD    seconds that it takes where its launches had a head start
LABOUR_GPU      MiB that the model takes on its device, by the framework's counter
LABOUR_ROOM     a file, which stands for a device that has room for one model
LABOUR_COUNTER  the name of that counter (default labour.peak)
LABOUR_VERSION  the version of the framework
LABOUR_HEAD     outputs are those of a detector's head: four rows of boxes in pixels, one of scores
LABOUR_FAULT    wrong, nan: other outputs
                batch: other outputs for one input alone
                few: other outputs for about 5 % of the inputs
                scaled, double: all outputs × 0.991, or in float64
                row: NaN for the inputs of which ``key_of`` is LABOUR_ROW
                batched: outputs that are 1 % off in batches of more than one input
                head: scores that are 0.01 off, with LABOUR_HEAD
                first: other outputs in the first call of a process
                seventh: outputs that are 10 % off on every 7th call
                race: other outputs with any number of threads but one
                die, killed: the process ends in the 30th call
                shot: as killed, but only the first process that is counted in LABOUR_COUNT
                refuses, dies, empty: a batch of more than two inputs is refused, ends the process,
                or has no outputs
                mute: the first call takes for ever
                drift, stay: from the third process on, which are counted in the file LABOUR_COUNT,
                other outputs, or loading without end
                deaf: the kernel does not count waits for a core
                threads, device: the model uses others than were asked for
                import, load: importing or loading fails
                abort, linger: the process aborts at its exit, or has a thread that goes on
                untold, profiler: there are no layers; telling them ends the process
                child: loading starts a process
"""

import atexit
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import numpy
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._run import process, scenarios

FAULT = os.environ.get("LABOUR_FAULT", "")
EVENTS = float(os.environ.get("LABOUR_EVENTS", "0"))
AHEAD = float(os.environ.get("LABOUR_AHEAD", "0"))
HOARD = int(os.environ.get("LABOUR_HOARD", "0"))
GPU = int(os.environ.get("LABOUR_GPU", "0"))
COUNTER = os.environ.get("LABOUR_COUNTER", "labour.peak")
SLEEP = float(os.environ.get("LABOUR_SLEEP", "0"))
SLOW = float(os.environ.get("LABOUR_SLOW", "0"))
WORK = int(os.environ.get("LABOUR_WORK", "1"))
UNIT = float(os.environ.get("LABOUR_UNIT", "1e-3"))
LATE = float(os.environ.get("LABOUR_LATE", "inf"))
EARLY = float(os.environ.get("LABOUR_EARLY", "0"))
LEAK = int(os.environ.get("LABOUR_LEAK", "0"))
HEAD = "LABOUR_HEAD" in os.environ
ROW = int(os.environ.get("LABOUR_ROW", "0"))
REAL = os.environ.get("LABOUR_CLOCK") == "real"

LAST_CALL = 30
FOREVER = 900  # seconds, longer than any test


class Clock:
    worked = 0.0
    slept = 0.0

    def cpu(self):
        return self.worked

    def wall(self):
        return self.worked + self.slept


def _use_own_clock():
    time.perf_counter = clock.wall
    scenarios.cpu_time = process.cpu_time = clock.cpu
    scenarios._loop.__defaults__ = (False, clock.wall)
    waited = process.QueueWait().read()  # readings never fall
    process.QueueWait.read = lambda self: waited


def _without_schedstat(self, of_others=False):
    self._file = None
    self.available = False


time.sleep(float(os.environ.get("LABOUR_IMPORT", "0")))
leaked = []
clock = Clock()
if not REAL:
    _use_own_clock()
if FAULT == "import":
    raise ImportError("pace.so: undefined symbol")
if FAULT == "abort":
    atexit.register(os.abort)
if FAULT == "linger":
    threading.Thread(target=time.sleep, args=(FOREVER,)).start()
if FAULT == "deaf":
    process.QueueWait.__init__ = _without_schedstat


def versions():
    return {"labour": os.environ.get("LABOUR_VERSION", "1.0")}


def devices():
    if FAULT or not EVENTS:
        return ["cpu"]
    return ["cpu", "cuda:0"]


def load(request):
    _sleep(0.1 + SLOW)
    if FAULT == "load":
        raise ValueError("an operator that this version lacks")
    if FAULT == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(%d)" % FOREVER])
    if "LABOUR_ROOM" in os.environ:
        _take_room(os.environ["LABOUR_ROOM"])
    model = {"calls": 0, "threads": request.threads, "number": 0, "hoard": numpy.ones(HOARD << 17)}
    if FAULT in ("drift", "stay"):
        model["number"] = _count_processes()
    if FAULT == "stay" and model["number"] > 2:
        time.sleep(FOREVER)
    device = "cuda:0" if FAULT == "device" else request.device
    threads = 7 if FAULT == "threads" else request.threads
    inputs = [Tensor("image", "float32", (None, 1, 8, 8))]
    outputs = [Tensor("logits", "float32", (None, 5, 10) if HEAD else (None, 10))]
    if FAULT == "double":
        outputs = [outputs[0]._replace(dtype="float64")]
    return Loaded(model, device, threads, inputs, outputs)


def predict(loaded, arrays):
    model = loaded.model
    model["calls"] += 1
    if FAULT == "mute":
        time.sleep(FOREVER)
    if model["calls"] == LAST_CALL:
        _end_process()
    if FAULT in ("refuses", "dies", "empty") and len(arrays["image"]) > 2:
        if FAULT == "dies":
            os._exit(7)
        if FAULT == "empty":
            return []
        raise ValueError("a batch of more than two inputs")
    _work(WORK if model["calls"] < LATE else 3 * WORK)
    _sleep(SLEEP + (EARLY if 2 <= model["calls"] <= 10 else 0))
    if LEAK:
        leaked.append(bytearray(LEAK))
    answer = 4 if FAULT == "wrong" else 3
    logits = numpy.zeros((len(arrays["image"]), 10), numpy.float32)
    logits[:, answer] = 1
    if FAULT == "batch" and len(logits) == 1:
        logits += 1
    if FAULT == "nan":
        logits[0] = numpy.nan
    if FAULT == "few":
        logits[numpy.round(arrays["image"].sum(axis=(1, 2, 3)) * 16) % 20 == 7] += 1
    if FAULT == "first" and model["calls"] == 1:
        logits += 1
    if FAULT == "seventh" and model["calls"] % 7 == 0:
        logits *= numpy.float32(0.9)
    if FAULT == "race" and model["threads"] != 1:
        logits += 1
    if FAULT == "drift" and model["number"] > 2:
        logits += 5
    if HEAD:
        logits = _head(arrays["image"])
    return [_outputs(logits, arrays["image"])]


def _outputs(logits, images):
    if FAULT == "scaled":
        logits *= numpy.float32(0.991)
    if FAULT == "double":
        logits = logits.astype(numpy.float64)
    if FAULT == "row":
        logits[key_of(images) == ROW] = numpy.nan
    if FAULT == "batched" and len(logits) > 1:
        logits *= numpy.float32(1.01)
    return logits


def _head(images):
    """Return ten boxes in pixels, a row an edge, and a score of each."""
    brightness = images.mean(axis=(1, 2, 3))[:, None]
    steps = numpy.arange(10, dtype=numpy.float32)
    edges = [320 + 60 * brightness + place * steps for place in range(4)]
    score = 0.9 * brightness / (1 + steps) + (0.01 if FAULT == "head" else 0)
    return numpy.stack([*edges, score], axis=1).astype(numpy.float32)


def key_of(images):
    """Return a whole number for each image of 64 pixels with 16 levels."""
    pixels = numpy.round(images.reshape(len(images), 64) * 16).astype(numpy.int64)
    return pixels @ numpy.arange(1, 65)


def device_seconds(loaded):
    return EVENTS


def event_times(loaded, arrays):
    assert len(arrays["image"]), "a batch"
    return EVENTS, AHEAD or None


def device_memory(loaded):
    return {COUNTER: GPU << 20} if GPU and loaded.device != "cpu" else {}


def layers(loaded, arrays):
    if FAULT == "untold":
        raise NotImplementedError("this version tells no layers")
    if FAULT == "profiler":
        os._exit(9)
    begin = time.perf_counter()
    _work(1)
    middle = time.perf_counter()
    _work(WORK - 1)
    end = time.perf_counter()
    common = Layer("common", "MatMul", begin, middle, None, None)
    extra = Layer("extra", "MatMul", middle, end, None, None)
    return Profile(begin, end, [common, extra])


def _end_process():
    if FAULT == "die":
        os._exit(7)
    if FAULT == "killed" or (FAULT == "shot" and _count_processes() == 1):
        os.kill(os.getpid(), signal.SIGKILL)


def _take_room(path):
    file = os.open(path, os.O_WRONLY | os.O_CREAT)  # until the process ends
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError("CUDA out of memory. Tried to allocate 40 GiB") from None


def _count_processes():
    path = os.environ["LABOUR_COUNT"]
    with open(path, "a") as file:
        file.write("x")
    return os.path.getsize(path)


def _work(units):
    seconds = units * UNIT
    if REAL:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
    clock.worked += seconds


def _sleep(seconds):
    if REAL:
        time.sleep(seconds)
    clock.slept += seconds
