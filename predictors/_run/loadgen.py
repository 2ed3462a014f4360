"""MLPerf's own LoadGen as the source of queries, over the same instances as our loads.

LoadGen is the package ``mlcommons_loadgen`` of the agent's interpreter (module mlperf_loadgen). It
runs in a thread of its own and calls back with queries, which wait in a queue for an instance that
is free. It computes everything itself, and writes it to its logs: they are the result.
"""

import collections
import os
import shutil
import tempfile
import threading
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .generation import at_first_token
from .instances import Instance, Instances
from .load import undisturbed
from .process import use_timer_slack
from .protocol import TIME, NamedArrays

LOG = TIME + "log:"
"""Prefix of the names of arrays that are logs, as bytes."""

LOGS = (
    "mlperf_log_summary.txt",
    "mlperf_log_detail.txt",
    "mlperf_log_accuracy.json",
    "mlperf_log_trace.json",
)
"""The files that LoadGen writes."""

_MISSING = (
    "LoadGen is not installed in %s; add mlcommons_loadgen to the requirements of the stack (%s)"
)
_ONE_TOKEN = (
    "an answer has one token, and LoadGen takes two at least to time them; let answers be longer, "
    "or measure without --mlms-loadgen"
)
_POLL = 0.2  # seconds between two looks at whether LoadGen ended


class LoadGenRequest(NamedTuple):
    """A run of LoadGen: its scenario and mode, and settings, by their names in LoadGen.

    ``most`` queries are joined to a call at most, which waits for them for ``max_delay``
    nanoseconds after the first of them came.
    """

    scenario: str
    mode: str
    settings: Dict[str, Any]
    most: int
    max_delay: int


class _Query(NamedTuple):
    """The samples of one query that go to one call: LoadGen's ids, and places in the library."""

    ids: Tuple[int, ...]
    samples: Tuple[int, ...]
    came: float


class _Queue:
    """Queries that wait for an instance: first in, first out."""

    def __init__(self, most: int, max_delay: float):
        self._most = most
        self._max_delay = max_delay
        self._queries: Deque[_Query] = collections.deque()
        self._taking = threading.Lock()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, queries: Sequence[_Query]) -> None:
        """Add queries that came together."""
        with self._changed:
            self._queries.extend(queries)
            self._changed.notify()

    def close(self) -> List[_Query]:
        """Have no instance wait any longer; return the queries that waited."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            waiting = list(self._queries)
            self._queries.clear()
            return waiting

    def take(self) -> Optional[List[_Query]]:
        """Return the queries of the next call; None where the queue is closed.

        One instance at a time waits for them, so that no other takes a part of its batch.
        """
        with self._taking, self._changed:
            while not self._queries and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            over = self._queries[0].came + self._max_delay
            rest = over - time.perf_counter()
            while len(self._queries) < self._most and rest > 0 and not self._closed:
                self._changed.wait(rest)
                rest = over - time.perf_counter()
            count = min(self._most, len(self._queries))
            return [self._queries.popleft() for _ in range(count)]


class _System:
    """The system under test: puts LoadGen's queries into a queue, and answers them."""

    def __init__(self, loadgen: Any, request: LoadGenRequest):
        self._loadgen = loadgen
        self._is_offline = request.scenario == "Offline"
        self._has_tokens = bool(request.settings.get("use_token_latencies"))
        self.queue = _Queue(request.most, request.max_delay * 1e-9)
        self.failed = False

    def issue(self, samples: Any) -> None:
        """Take the samples of a query. Offline has one query, whose samples are served singly."""
        came = time.perf_counter()
        ids = tuple(sample.id for sample in samples)
        places = tuple(sample.index for sample in samples)
        if self.failed:
            self._complete([(number, None) for number in ids])
        elif self._is_offline:
            self.queue.put(
                [_Query((number,), (place,), came) for number, place in zip(ids, places)]
            )
        else:
            self.queue.put([_Query(ids, places, came)])

    def serve(self, instance: Instance) -> None:
        """Serve queries with one instance until the queue is closed."""
        ids: List[int] = []
        if self._has_tokens:
            at_first_token(instance.loaded, lambda: self._tell_first(ids))
        use_timer_slack(1)
        try:
            self._serve(instance, ids)
        finally:
            use_timer_slack(0)
            if self._has_tokens:
                at_first_token(instance.loaded, _do_nothing)

    def _serve(self, instance, ids):
        """Serve queries; ``ids`` has LoadGen's ids of the samples of each call while it runs."""
        while True:
            queries = self.queue.take()
            if queries is None:
                return
            samples = [sample for query in queries for sample in query.samples]
            ids[:] = [number for query in queries for number in query.ids]
            try:
                output = instance.serve(samples)[0]
                if self._has_tokens and output.size < 2:
                    raise ValueError(_ONE_TOKEN)
            except BaseException:
                self._give_up(list(ids))
                raise
            tokens = output.size if self._has_tokens else 0
            self._complete(list(zip(ids, _rows(output, len(samples)))), tokens)

    def _give_up(self, ids):
        """Answer everything without outputs, as LoadGen waits for answers and can't be ended."""
        self.failed = True
        for query in self.queue.close():
            ids.extend(query.ids)
        self._complete([(number, None) for number in ids])

    def _tell_first(self, ids):
        """Tell that the first token of each sample is there; LoadGen takes the time."""
        responses = [self._loadgen.QuerySampleResponse(number, 0, 0) for number in ids]
        self._loadgen.FirstTokenComplete(responses)

    def _complete(self, answers, tokens=0):
        """Answer samples; the outputs stay alive until LoadGen has copied them.

        Of tokens LoadGen wants the first one before, also where there is no answer.
        """
        if self._has_tokens and not tokens:
            self._tell_first([number for number, _ in answers])
        counted = (tokens,) if tokens else ()  # which older releases of LoadGen don't take
        responses = []
        for number, output in answers:
            address = 0 if output is None else output.ctypes.data
            size = 0 if output is None else output.nbytes
            responses.append(self._loadgen.QuerySampleResponse(number, address, size, *counted))
        self._loadgen.QuerySamplesComplete(responses)


def _rows(output, count):
    """Return a part of the first output for each sample."""
    import numpy

    if count == 1:
        return [numpy.ascontiguousarray(output)]
    return [numpy.ascontiguousarray(part) for part in numpy.array_split(output, count)]


def import_loadgen(executable: str) -> Any:
    """Return the module of LoadGen; raises RuntimeError where it is missing."""
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise RuntimeError(_MISSING % (executable, error)) from error
    return mlperf_loadgen


def run_loadgen(
    loadgen: Any, instances: Instances, samples: int, request: LoadGenRequest
) -> NamedArrays:
    """Let LoadGen drive the instances; return its logs as arrays of bytes.

    Raises ValueError for a setting that LoadGen doesn't have, and what a call raised.
    """
    settings = _settings(loadgen, request)
    system = _System(loadgen, request)
    folder = tempfile.mkdtemp(prefix="mlms-loadgen-")
    errors: List[BaseException] = []

    def drive() -> None:
        use_timer_slack(1)
        try:
            _start(loadgen, system, samples, settings, folder)
        except BaseException as error:
            errors.append(error)
        finally:
            system.queue.close()

    driver = threading.Thread(target=drive, name="mlms-loadgen", daemon=True)

    try:
        with undisturbed():
            driver.start()
            instances.run(system.serve)
        while driver.is_alive():
            driver.join(_POLL)
        if errors:
            raise errors[0]
        return _read_logs(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settings(loadgen, request):
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, request.scenario)
    settings.mode = getattr(loadgen.TestMode, request.mode)
    for name, value in request.settings.items():
        if not hasattr(settings, name):
            raise ValueError("LoadGen has no setting %r" % name)
        setattr(settings, name, value)
    return settings


def _start(loadgen, system, samples, settings, folder):
    outputs = loadgen.LogOutputSettings()
    outputs.outdir = folder
    outputs.copy_summary_to_stdout = False
    logs = loadgen.LogSettings()
    logs.log_output = outputs
    logs.enable_trace = True
    sut = loadgen.ConstructSUT(system.issue, _do_nothing)
    library = loadgen.ConstructQSL(samples, samples, _do_nothing, _do_nothing)
    try:
        audit = os.path.join(folder, "audit.config")  # none; never one of the working folder
        loadgen.StartTestWithLogSettings(sut, library, settings, logs, audit)
    finally:
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(sut)


def _do_nothing(samples: Optional[Any] = None) -> None:
    """The samples are in memory already, and no query waits for a flush."""


def _read_logs(folder):
    import numpy

    found = []
    for name in LOGS:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                found.append((LOG + name, numpy.frombuffer(file.read(), "u1")))
    return found
