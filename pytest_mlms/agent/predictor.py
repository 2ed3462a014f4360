"""A model loaded in an agent, as items and users' tests see it: what it really runs on, and calls
with arrays.

Checks at the door: the framework is there and of a version that the manifest takes, the device is
there and is the one used, and the model's signature is the manifest's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mlms_predictors import Operation, Structure, Tensor

from pytest_mlms.agent.process import Agent, Array, Refused, Reply, start_agent
from pytest_mlms.cases import Case
from pytest_mlms.errors import InvalidRun, OutputError, Unavailable
from pytest_mlms.records import Launch, device_name

__all__ = ["Clocks", "Predictor", "Run", "Turn", "open_predictor"]


_TIMES = ("start", "end", "wait", "cpu", "at", "device")


class Clocks(NamedTuple):
    """What an agent can tell of its turns: waits for a core, time on the device.

    And whether it may be stopped.
    """

    wait: bool
    device: bool
    stoppable: bool


class Turn(NamedTuple):
    """A few calls: raw times in seconds by name, outputs by name, the peak resident set in bytes
    (None: not asked).
    """

    times: Mapping[str, Array]
    outputs: Mapping[str, Array]
    peak_bytes: int | None


@dataclass(frozen=True)
class Run:
    """What a scenario gave: raw times in seconds by name (see
    mlms_predictors._run.scenarios.Samples).
    """

    times: Mapping[str, Array]
    outputs: Mapping[str, Array]
    sha256: str
    peak_bytes: int

    @property
    def latencies(self) -> Array:
        """Seconds from the start to the end of each call."""
        return np.asarray(self.times["end"] - self.times["start"])


@dataclass(frozen=True)
class Predictor:
    """A loaded model. ``versions`` and ``python`` are the agent's.

    Times are seconds, memory is bytes.
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

    def predict(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch: arrays by input name in, arrays by output name out. Raises AgentError."""
        return self.agent.request("predict", arrays=self._ordered(arrays)).arrays

    def run(
        self,
        scenario: str,
        batches: Sequence[Mapping[str, Array]] = (),
        *,
        seconds: float,
        least: int,
        longest: float,
    ) -> Run:
        """Time a scenario over ``batches``, or over those of the last run where none are given.

        It ends once ``seconds`` and ``least`` calls are both met, or after ``longest`` seconds.
        Raises AgentError.
        """
        stop = {"seconds": seconds, "least": least, "longest": longest}
        fields: dict[str, Any] = {"scenario": scenario, "stop": stop}
        if batches:
            fields["batches"] = len(batches)
        arrays = [pair for batch in batches for pair in self._ordered(batch)]
        facts, named = self.agent.request("run", fields, arrays, seconds=longest)
        times = {name: named.pop(name) for name in ("start", "end", "wait", "cpu", "at")}
        return Run(times, named, facts["output_sha256"], facts["peak_rss"])

    def inner(self, arrays: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """Run one batch: what each layer gave, by its name, in the order in which they ran.

        Raises Refused where the framework can't say.
        """
        return list(self.agent.request("inner", arrays=self._ordered(arrays)).arrays.items())

    def bind(self, batches: Sequence[Mapping[str, Array]]) -> Clocks:
        """Prepare turns over ``batches``; return what this agent can tell of them.

        Raises AgentError.
        """
        arrays = [pair for batch in batches for pair in self._ordered(batch)]
        facts = self.agent.request("bind", {"batches": len(batches)}, arrays).facts
        return Clocks(facts["wait"], facts["device"], facts["stoppable"])

    def hold(self, cores: Sequence[int]) -> None:
        """Hold the thread that makes the calls to these cores, and no other. Raises AgentError."""
        self.agent.request("hold", {"cores": list(cores)})

    def turn(self, count: int = 1, skip: int = 0, first: int = 0, outputs: bool = False) -> Turn:
        """Time ``count`` calls after ``skip`` that aren't, from batch number ``first`` on. Raises
        AgentError.

        The outputs, and the process's peak of memory, are those after the call on batch ``first``.
        """
        fields = {"count": count, "skip": skip, "first": first, "outputs": outputs}
        facts, named = self.agent.request("turn", fields)
        times = {name: named.pop(name) for name in list(named) if name in _TIMES}
        return Turn(times, named, facts["peak_rss"])

    def profile(self, batch: Mapping[str, Array], count: int) -> list[Any]:
        """Return [start, end, layers] of ``count`` calls, by the framework's profiler.

        Raises Refused without one.
        """
        profiles: list[Any] = self.agent.request(
            "profile", {"count": count}, self._ordered(batch)
        ).facts["profiles"]
        return profiles

    def peaks(self) -> dict[str, Any]:
        """Measure the device's operations and bytes a second.

        Raises Refused where the stack can't.
        """
        facts = self.agent.request("peaks").facts
        return {name: facts[name] for name in ("flops", "bytes", "how")}

    def structure(self, shapes: Mapping[str, Sequence[int]]) -> Structure:
        """Return the model as a graph for inputs of these shapes.

        Raises Refused where the framework can't say.
        """
        facts = self.agent.request(
            "structure", {"shapes": {name: list(shape) for name, shape in shapes.items()}}
        ).facts
        layers = [Operation(*layer) for layer in facts["layers"]]
        return Structure(
            layers,
            list(_tensors(facts["tensors"])),
            facts["inputs"],
            facts["outputs"],
            facts["counter"],
        )

    def trace(
        self,
        level: str,
        probes: Sequence[str],
        count: int,
        arrays: Mapping[str, Array],
        options: Mapping[str, Any],
        seconds: float,
    ) -> Reply:
        """Watch ``count`` calls with a batch, and as many without a probe; the reply is
        _run.tracing's.

        ``seconds`` is what the calls may take beside the time-out. Raises AgentError.
        """
        fields = {
            "level": level,
            "probes": list(probes),
            "count": count,
            "plain": -(-count // 2),
            "options": options,
        }
        return self.agent.request("trace", fields, self._ordered(arrays), seconds=seconds)

    def _ordered(self, arrays: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """Check a batch against the model's signature, for an error that shows both.

        The framework's own may not.
        """
        pairs = []
        for tensor in self.inputs:
            if tensor.name not in arrays:
                raise OutputError(
                    f"there is no array for input {tensor.name!r}; given were {sorted(arrays)}"
                )
            array = arrays[tensor.name]
            if not _fits(array.shape, tensor.shape) or array.dtype.name != tensor.dtype:
                raise OutputError(
                    f"input {tensor.name!r}: the manifest's steps make {_shown(array.dtype.name, array.shape)}, "
                    f"and the model takes {_shown(tensor.dtype, tensor.shape)}; change the steps, layout, "
                    f"element_type or batch_sizes"
                )
            pairs.append((tensor.name, array))
        return pairs


@contextlib.contextmanager
def open_predictor(
    case: Case,
    launch: Launch,
    predictor: Path,
    files: Mapping[str, Path],
    log: Path,
    timeout: float,
    allow_code: bool = False,
) -> Iterator[Predictor]:
    """Start an agent of the case's stack and load its model; the agent ends with the context.

    Raises Unavailable where framework, version or device are lacking, OutputError where the
    signature is another, AgentError where it can't be loaded.
    """
    began = time.perf_counter()
    agent = start_agent(launch, predictor, log, timeout)
    try:
        hello = _hello(agent, case, launch)
        yield _load(agent, case, files, allow_code, hello, time.perf_counter() - began)
    finally:
        agent.close()


def _load(
    agent: Agent,
    case: Case,
    files: Mapping[str, Path],
    allow_code: bool,
    hello: Mapping[str, Any],
    took: float,
) -> Predictor:
    device = device_name(case.device)
    request = {
        "files": {role: str(path) for role, path in files.items()},
        "device": device,
        "threads": case.threads,
    }
    facts = agent.request(
        "load", {**request, "options": case.model.options, "allow_code": allow_code}
    ).facts
    if facts["device"] != device:
        raise InvalidRun(
            f"asked for {device}, {case.stack.framework} runs on {facts['device']}: it fell back silently; "
            f"mend its installation, or evaluate on what it has"
        )
    if case.threads and facts["threads"] != case.threads:
        found = (
            "its own choice of threads" if facts["threads"] is None else _threads(facts["threads"])
        )
        raise InvalidRun(
            f"asked for {_threads(case.threads)}, {case.stack.framework} runs with {found}; "
            f"ask for what it can do, or for none (evaluate.threads, or the stack's threads)"
        )
    made = Predictor(
        agent,
        facts["device"],
        facts["threads"],
        hello["cores"] and tuple(hello["cores"]),
        hello["versions"],
        hello["python"],
        hello["executable"],
        _tensors(facts["inputs"]),
        _tensors(facts["outputs"]),
        took,
        facts["seconds"],
        facts["waited"],
        facts["rss_before"],
        facts["peak_is_since_load"],
    )
    _check_signature(case, made)
    return made


def _hello(agent: Agent, case: Case, launch: Launch) -> dict[str, Any]:
    name, where = case.stack.framework, f"stack {case.stack.name} ({launch.command[0]})"
    try:
        hello = agent.request("hello").facts
    except Refused as error:
        if error.error not in ("ImportError", "ModuleNotFoundError"):
            raise
        raise Unavailable(
            f"{name} can't be imported in {where}; install it there: {error}"
        ) from None
    version = hello["versions"].get(name)
    if version is None or not case.model.versions.contains(version, prereleases=True):
        raise Unavailable(
            f"{case.place('framework')}: asks for {case.model.framework}, and {where} has {name} {version}"
        )
    if device_name(case.device) not in hello["devices"]:
        raise Unavailable(
            f"no device {case.device}: {name} {version} in {where} has {', '.join(hello['devices'])}"
        )
    return hello


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"


def _tensors(facts: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name, dtype, tuple(shape)) for name, dtype, shape in facts)


def _fits(shape: Sequence[int], declared: Sequence[int | None]) -> bool:
    """Whether an array's shape is one that the model declares; a model may declare none at all."""
    same = len(shape) == len(declared) and all(
        b in (None, a) for a, b in zip(shape, declared, strict=True)
    )
    return same or not declared


def _check_signature(case: Case, predictor: Predictor) -> None:
    manifest = case.loaded.manifest
    inputs = {spec.name: spec.element_type for spec in manifest.inputs}
    for section, ours, theirs in (
        ("inputs", inputs, {tensor.name: tensor.dtype for tensor in predictor.inputs}),
        (
            "outputs",
            {spec.name: None for spec in manifest.outputs},
            {tensor.name: None for tensor in predictor.outputs},
        ),
    ):
        wrong = ours != theirs if section == "inputs" else not set(ours) <= set(theirs)
        if wrong:
            tensors = predictor.inputs if section == "inputs" else predictor.outputs
            model = ", ".join(
                f"{tensor.name} ({_shown(tensor.dtype, tensor.shape)})" for tensor in tensors
            )
            raise OutputError(
                f"{case.loaded.place(section)}: the model has other {section} than the manifest\n"
                f"  the manifest: {', '.join(f'{name} ({kind})' if kind else name for name, kind in ours.items())}\n"
                f"  the model:    {model}\n"
                f"  write the model's names and types into the manifest"
            )


def _shown(dtype: str, shape: Sequence[int | None]) -> str:
    return f"{dtype} {' x '.join('any' if size is None else str(size) for size in shape)}"
