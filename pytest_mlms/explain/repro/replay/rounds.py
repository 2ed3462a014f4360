"""Rounds of fresh processes: a quantity of both sides in turns, or of one side against a limit."""

import math
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from .agent import Agent, Ended, Failed, seconds_of
from .intervals import MOST_ROUNDS, Change, change_of
from .sides import NEW, OLD, Sides
from .task import CannotRun, Seen, Task

_PAGE = 4096.0  # bytes
_WARM_UP_PAIRS = 8
_WARM_UP_SECONDS = 1.0
_TURN_SECONDS = 0.002
_MOST_CALLS = 200  # in a turn
_LEAST_TURNS = 5
_MOST_TURNS = 500

Tell = Callable[[str], None]


class Turn(NamedTuple):
    """Seconds of each call of a turn, less the calling thread's wait for a core; CPU seconds."""

    calls: List[float]
    waited: float
    cpu: float

    @property
    def latency(self) -> float:
        """The median call, less the mean wait, in seconds."""
        return max(_median(self.calls) - self.waited, 1e-9)


class Process(NamedTuple):
    """The measurements of one process: its turns, and what it has once.

    ``peak_bytes`` is the peak above ``import_bytes``, which it had before the model was loaded.
    ``device_bytes`` is the peak on a GPU, by the name of each counter that tells it.
    """

    turns: List[Turn]
    load_seconds: float
    first_seconds: float
    peak_bytes: float
    import_bytes: float
    device_bytes: Dict[str, int] = {}


def _calls(process: Process) -> List[float]:
    return [seconds for turn in process.turns for seconds in turn.calls]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _median(values: Sequence[float]) -> float:
    return percentile(values, 50)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated linearly."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _latency(process: Process) -> float:
    return _median([turn.latency for turn in process.turns])


def _device_memory(process: Process) -> float:
    for counted in process.device_bytes.values():
        return float(counted)
    raise CannotRun("nothing tells the memory of the device here, or not by one counter for both")


FIGURES: Dict[str, Callable[[Process], float]] = {
    "latency": _latency,
    "latency_p50": _latency,
    "latency_mean": lambda process: _mean(_calls(process)),
    "latency_p90": lambda process: percentile(_calls(process), 90),
    "latency_p95": lambda process: percentile(_calls(process), 95),
    "latency_p99": lambda process: percentile(_calls(process), 99),
    "wall_time": lambda process: _median(_calls(process)),
    "cpu_time": lambda process: _median([turn.cpu for turn in process.turns]),
    "load_time": lambda process: process.load_seconds,
    "first_inference": lambda process: process.first_seconds,
    "peak_memory": lambda process: process.peak_bytes,
    "import_memory": lambda process: process.import_bytes,
    "device_memory": _device_memory,
}
"""The quantities that a replay measures; ``throughput`` is one over the mean latency."""

QUANTITIES = (*FIGURES, "throughput")


def figure_of(process: Process, quantity: str, inputs: int) -> float:
    """Return a quantity of a process in its base unit."""
    if quantity == "throughput":
        return inputs / _mean(_calls(process))
    return FIGURES[quantity](process)


def observe_ratio(task: Task, sides: Sides, tell: Tell) -> Seen:
    """Measure both sides in rounds of fresh processes until the ratio is decided, as the gate does.

    A change of less than the expectation's least one doesn't matter on this machine, either.
    """
    expected = task.expected
    sign = 1 if expected.better == "lower" else -1
    before: List[float] = []
    changes: List[float] = []
    for number in range(MOST_ROUNDS):
        old, new = _round(task, sides, number)
        before.append(old)
        changes.append(sign * math.log((new + expected.base) / (old + expected.base)))
        tell("round %d: %s %s" % (number + 1, expected.quantity, _values(old, new, task)))
        tolerance = expected.tolerance or 0.0
        if expected.least_change:
            tolerance = max(tolerance, expected.least_change / _median(before))
        found = change_of(changes, math.log1p(tolerance))
        if found.is_decided:
            break
    return _seen_ratio(expected.quantity, tolerance, found, sign)


def _values(old: float, new: float, task: Task) -> str:
    unit = task.expected.unit
    ratio = " (×%.4f)" % (new / old) if old > 0 else ""
    return "%s → %s%s" % (shown(old, unit), shown(new, unit), ratio)


_SCALES: Dict[str, Sequence[Tuple[float, str]]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((float(1 << 30), "GiB"), (float(1 << 20), "MiB"), (float(1 << 10), "KiB")),
}


def shown(value: float, unit: str) -> str:
    """Return a value with its unit, as a person reads it."""
    scales = _SCALES.get(unit, ((1.0, unit),))
    fitting = [scale for scale in scales if abs(value) >= scale[0]]
    divisor, name = fitting[0] if fitting else scales[-1]
    return ("%.4g %s" % (value / divisor, name)).rstrip()


def _seen_ratio(quantity: str, tolerance: float, found: Change, sign: int) -> Seen:
    ratio = math.exp(sign * found.mean)
    low, high = sorted(_exp(sign * end) for end in (found.low, found.high))
    ends = "×%.3f (×%.3f to ×%.3f, %d rounds)" % (ratio, low, high, found.rounds)
    allowed = "%.3g %%" % (100 * tolerance)
    if found.is_worse:
        text = "%s is worse by more than %s: %s" % (quantity, allowed, ends)
    elif found.is_fine:
        text = "%s is within %s: %s" % (quantity, allowed, ends)
    else:
        text = "whether %s is within %s stays undecided: %s" % (quantity, allowed, ends)
    return Seen(
        found.is_worse, text, undecided=not found.is_decided, ratio=ratio, low=low, high=high
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def observe_limit(task: Task, sides: Sides, tell: Tell) -> Seen:
    """Measure one side in fresh processes until its quantity is surely beyond its limit or not."""
    limit = task.expected.limit or 0.0
    sign = 1 if task.expected.better == "lower" else -1
    unit = task.expected.unit
    values: List[float] = []
    for number in range(MOST_ROUNDS):
        value = _single(task, sides)
        values.append(sign * value)
        tell("process %d: %s" % (number + 1, shown(value, unit)))
        found = change_of(values, sign * limit)
        if found.is_decided:
            break
    low, high = sorted(sign * end for end in (found.low, found.high))
    ends = [shown(one, unit) for one in (sign * found.mean, low, high)]
    text = "%s is %s (%s to %s" % (task.expected.quantity, *ends)
    text += ", %d processes); its limit is %s" % (found.rounds, shown(limit, unit))
    undecided = not found.is_decided
    return Seen(found.is_worse, text + "; that is not decided" * undecided, undecided=undecided)


def _round(task: Task, sides: Sides, number: int) -> Tuple[float, float]:
    """Measure both sides in turns, the waiting one stopped; return their figures."""
    order = (OLD, NEW) if number % 2 == 0 else (NEW, OLD)
    started: Dict[str, _Started] = {}
    try:
        for side in order:
            started[side] = _Started(sides.fresh(side), task)
            started[side].agent.pause()
        _run_turns([started[side] for side in order], task.seconds)
        processes = _by_one_counter({side: started[side].finish() for side in order})
        figures = {}
        for side, process in processes.items():
            figures[side] = figure_of(process, task.expected.quantity, _inputs(task))
    except (Failed, Ended) as error:
        raise CannotRun("a side can't run the model here: %s" % error) from None
    finally:
        sides.close()
    for value in figures.values():
        if not value + task.expected.base > 0:
            raise CannotRun("this machine can't measure the quantity: it is %r" % value)
    return figures[OLD], figures[NEW]


def _by_one_counter(processes: Dict[str, Process]) -> Dict[str, Process]:
    """Return processes without the counters of a GPU's memory that others don't have."""
    both = [set(process.device_bytes) for process in processes.values()]
    common = set.intersection(*both)
    kept = {}
    for side, process in processes.items():
        counted = {name: size for name, size in process.device_bytes.items() if name in common}
        kept[side] = process._replace(device_bytes=counted)
    return kept


def _single(task: Task, sides: Sides) -> float:
    try:
        started = _Started(sides.fresh(NEW), task)
        _run_turns([started], task.seconds)
        return figure_of(started.finish(), task.expected.quantity, _inputs(task))
    except (Failed, Ended) as error:
        raise CannotRun("the model can't be run here: %s" % error) from None
    finally:
        sides.close()


def _inputs(task: Task) -> int:
    shape = task.inputs[0].shape if task.inputs else ()
    return shape[0] if shape else 1


class _Started:
    """An agent with the model loaded and bound to the inputs, and the turns that it had."""

    def __init__(self, agent: Agent, task: Task):
        self.agent = agent
        self.turns: List[Turn] = []
        self._loaded, _ = agent.request("load", task.load)
        bound, _ = agent.request("bind", {"batches": 1}, task.inputs)
        first = self.turn(1, 0)
        self._first = bound["bind_seconds"] + first.calls[0]

    def turn(self, count: int, skip: int) -> Turn:
        """Make ``count`` timed calls after ``skip`` others."""
        request = {"count": count, "skip": skip, "first": 0, "outputs": False}
        _, arrays = self.agent.request("turn", request)
        pairs = zip(seconds_of(arrays, "start"), seconds_of(arrays, "end"))
        waits = seconds_of(arrays, "wait")
        cpu = seconds_of(arrays, "cpu")
        calls = [end - start for start, end in pairs]
        return Turn(calls, (waits[-1] - waits[0]) / count, (cpu[-1] - cpu[0]) / count)

    def finish(self) -> Process:
        """Return what was measured, with the peak of memory."""
        self.agent.resume()
        request = {"count": 1, "skip": 0, "first": 0, "outputs": False, "memory": True}
        facts, _ = self.agent.request("turn", request)
        loaded = self._loaded
        before = float(loaded["rss_before"])
        return Process(
            turns=self.turns,
            load_seconds=loaded["seconds"] - loaded["waited"],
            first_seconds=self._first,
            peak_bytes=max(_PAGE, facts["peak_rss"] - before),
            import_bytes=before,
            device_bytes=(facts.get("device_memory") or ({},))[0],
        )


def _run_turns(started: Sequence[_Started], seconds: float) -> None:
    """Give all agents turns, one at a time, until they had so many seconds together."""
    warm: List[float] = []
    spent = 0.0
    while len(warm) < _WARM_UP_PAIRS and spent < _WARM_UP_SECONDS:
        longest = max(_turn(one, 1, 0).latency for one in started)
        warm.append(longest)
        spent += len(started) * longest
    count = max(1, min(_MOST_CALLS, math.ceil(_TURN_SECONDS / warm[-1])))
    spent = 0.0
    turns = 0
    while turns < _MOST_TURNS and (spent < seconds or turns < _LEAST_TURNS):
        order = list(started) if turns % 2 == 0 else list(reversed(started))
        for one in order:
            turn = _turn(one, count, 1 if count > 1 else 0)
            one.turns.append(turn)
            spent += sum(turn.calls)
        turns += 1


def _turn(one: "_Started", count: int, skip: int) -> Turn:
    one.agent.resume()
    try:
        return one.turn(count, skip)
    finally:
        one.agent.pause()
