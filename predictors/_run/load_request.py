"""The request for a load: its fields and arrays, and its reply."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .arrivals import ClosedLoop, OpenLoop
from .energy import EnergyMeter
from .instances import Instances, Library
from .load import Queries, Recorder, Reporter, run_load
from .process import BusyThreads, PeakMemory, has_server
from .protocol import TIME, NamedArrays, OutgoingReply, Tensor
from .replies import LoadRunReply, make_reply
from .served import LoadCalls

SAMPLES = TIME + "samples"
SCHEDULED = TIME + "scheduled"
RECORDS = TIME + "records"
READINGS = TIME + "readings"
TOKENS = TIME + "tokens"

_TOO_LARGE = (
    "a batch of %d does not fit input %r, whose axis 0 is fixed at %d; convert the model with a "
    "free axis 0, or have no batcher and %d samples in a query"
)

_EACH_SIZE = 64  # queries in a call; all sizes up to here are prepared

SendPart = Callable[[NamedArrays], None]
"""Sends the arrays of a part of a reply."""


class LoadRequest(NamedTuple):
    """The fields of a request.

    ``batches`` is the number of samples whose arrays come with it, 0 for those of the last load. A
    call takes up to ``most`` queries of
    ``per_query`` samples, and waits for them for ``max_delay`` nanoseconds. ``seconds``,
    ``least`` and ``longest`` (seconds) are those of a ClosedLoop. ``idle`` are the seconds before
    the load in which the power of the idle device is measured. ``available`` are bytes of memory
    that are free.
    """

    batches: int
    per_query: int
    instances: int
    most: int
    max_delay: int
    seconds: float
    least: int
    longest: float
    idle: float
    available: int


def request_of(header: Dict[str, Any]) -> LoadRequest:
    """Return the fields of a request."""
    return LoadRequest(**{name: header[name] for name in LoadRequest._fields})


def take_library(request: LoadRequest, arrays: NamedArrays) -> Tuple[Dict[str, Any], Library]:
    """Return the arrays of the queries by name, and the samples."""
    schedule = {name: array for name, array in arrays if name.startswith(TIME)}
    inputs = arrays[len(schedule) :]
    size = len(inputs) // request.batches if request.batches else 0
    library = []
    for place in range(request.batches):
        library.append(dict(inputs[place * size : (place + 1) * size]))
    return schedule, library


def answer_load(
    instances: Instances,
    library: Library,
    request: LoadRequest,
    schedule: Dict[str, Any],
    send: Optional[SendPart],
    peak: PeakMemory,
) -> Tuple[OutgoingReply, LoadCalls]:
    """Run a load with prepared instances; return its reply, and the calls that are held."""
    samples = schedule[SAMPLES]
    queries = Queries(memoryview(samples), request.per_query, rows_of(library))
    arrivals = _arrivals(request, schedule.get(SCHEDULED))
    recorder = Recorder()
    meter = EnergyMeter(instances.device)
    idle_watts = meter.idle_watts(request.idle)

    def send_block(*block: Any) -> None:
        meter.read()
        if send is not None:
            send(_named_block(*block))

    threads = BusyThreads()
    try:
        meter.begin()
        with Reporter(recorder, send and send_block):
            served = run_load(instances, arrivals, queries, recorder)
        joules = meter.joules()
        busy = threads.count()
        record = LoadRunReply(
            peak_rss=peak.read(),
            own_bytes=0
            if has_server()
            else sum(array.nbytes for array in schedule.values())
            + sum(instance.bytes for instance in served),
            instance_bytes=instances.bytes,
            joules=joules,
            idle_watts=idle_watts,
            energy_missing=meter.missing,
            busy=busy,
            energy_period=meter.period,
            device_memory=instances.memory.read(),
        )
        calls = LoadCalls([call for instance in served for call in instance.calls])
        return make_reply(record, _named_block(*recorder.take_block())), calls
    except BaseException:
        if send is not None:
            send(_named_block(*recorder.take_block()))
        raise
    finally:
        meter.close()
        recorder.close()


def check_batches(inputs: Sequence[Tensor], library: Library, request: LoadRequest) -> None:
    """Raise ValueError where the largest batch of a load doesn't fit an input of the model."""
    samples = request.per_query * request.most
    if samples == 1:
        return
    for tensor in inputs:
        array = library[0][tensor.name]
        if not array.ndim:
            text = "input %r has no axis on which inputs could be joined to a batch"
            raise ValueError(text % tensor.name)
        size = tensor.shape[0] if tensor.shape else None
        wanted = samples * array.shape[0]
        varies = request.most > 1
        if size is not None and (varies or size != wanted):
            raise ValueError(_TOO_LARGE % (wanted, tensor.name, size, size // array.shape[0]))


def sizes_of(request: LoadRequest, queries: int) -> List[int]:
    """Return the numbers of samples that calls are prepared with, where so many queries may wait.

    They are those of all batches up to 64 queries. Of larger ones they double, up to the largest:
    each size is a call, and a batcher may join more queries than any load will have waiting.
    """
    most = max(1, min(request.most, queries))
    counts = list(range(1, min(most, _EACH_SIZE) + 1))
    while counts[-1] < most:
        counts.append(min(2 * counts[-1], most))
    return [request.per_query * count for count in counts]


def rows_of(library: Library) -> int:
    """Return the size of a sample on the batch axis; 1 for inputs without axes."""
    for array in library[0].values():
        return array.shape[0] if array.ndim else 1
    return 1


def _arrivals(request, scheduled):
    longest = int(request.longest * 1e9)
    if scheduled is None:
        return ClosedLoop(int(request.seconds * 1e9), request.least, longest)
    return OpenLoop(scheduled, request.most, request.max_delay, longest)


def _named_block(records, readings, tokens):
    block = [(RECORDS, records), (READINGS, readings)]
    return [*block, (TOKENS, tokens)] if len(tokens) else block
