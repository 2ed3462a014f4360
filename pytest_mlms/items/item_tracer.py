"""Tracing of an item: the trace, its files in the item's folder, and its summary in the results."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mlms_predictors._run.options import layer_variables_of

from pytest_mlms.config import Config
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.inputs import random_batch
from pytest_mlms.measure.evaluate.rows import BatchAxis
from pytest_mlms.measure.pipeline import Dataset, class_numbers, postprocess, table_of
from pytest_mlms.measure.structure.cost import ModelCost
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from pytest_mlms.measure.trace.builder import PreparedRequest
from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.counters import CounterRow, counter_rows
from pytest_mlms.measure.trace.exporters.perfetto import write_perfetto
from pytest_mlms.measure.trace.records import TraceMetadata, TraceSummary
from pytest_mlms.measure.trace.roofline import work_of
from pytest_mlms.measure.trace.runner import TracePlan, TraceTarget, run_trace
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.storage import save_trace
from pytest_mlms.measure.trace.summary import summarize, summarize_cost
from pytest_mlms.measure.trace.tables import (
    KernelRow,
    LayerRow,
    kernel_rows,
    layer_rows,
    write_table,
)
from pytest_mlms.provide.artifacts.digest import without_record
from pytest_mlms.provide.artifacts.fetch import CaseFiles, fetch
from pytest_mlms.provide.cases import Case
from pytest_mlms.warning_types import MlmsWarning

FILES = ("trace.pftrace", "trace.npz", "layers.csv", "kernels.csv", "counters.csv")
_LEVELS_AFTER_FAILURE = ("layer", "hardware")  # unless --mlms-trace names others


class MlmsUnseen(MlmsWarning):
    """A level that was asked for has nothing to show, or less than it should have."""


@dataclass(frozen=True)
class ItemTracer:
    """Traces one case: for its trace item, for an item that failed, or for a user's test.

    ``predictor`` is the file of its framework's.
    """

    case: Case
    files: CaseFiles
    dataset: Dataset | None
    open_predictor: Callable[..., AbstractContextManager[Predictor]]
    recorder: Recorder
    config: Config
    predictor: Path

    def trace(self, levels: Sequence[str]) -> dict[str, Any]:
        """Trace at these levels; return the field ``trace`` of the item's results, as plain values.

        Raises AgentError where even calls without any probe fail.
        """
        plain: dict[str, Any] = to_plain(self._trace(levels))
        return plain

    def trace_item(self) -> None:
        """Trace at the levels of the options, and pass.

        Warns of each level without anything to show or cut short; under --mlms-strict it fails the
        item. Raises AgentError where even calls without any probe fail.
        """
        summary = self._trace(self.config.trace)
        problems = [f"level {level}: {reason}" for level, reason in summary.unseen.items()]
        for level, reason in summary.faults.items():
            problems.append(f"level {level} was cut short: {reason}")
        self.recorder.settle_without_limits(problems, MlmsUnseen, self.config.strict)

    def _trace(self, levels: Sequence[str]) -> TraceSummary:
        config = self.config
        plan = TracePlan(tuple(levels), config.duration, config.budget, config.trace_functions)
        variables: Mapping[str, str] = {}
        if self.case.device.startswith("cuda"):
            variables = layer_variables_of(self.predictor)
        target = TraceTarget(self.open_predictor, self._batch, self._request, variables)
        try:
            case = self.case
            cost = static_cost(case, self.files)
            metadata = TraceMetadata(
                manifest=case.loaded.manifest.name,
                case=case.id,
                batch_size=case.batch_size,
                framework=case.stack.framework,
                device=case.device,
                kind=case.kind,
                static=tuple(map(work_of, cost.layers)) if cost else (),
                cost=summarize_cost(cost) if cost else None,
                wall_offset_ns=time.time_ns() - time.monotonic_ns(),
            )
            trace = run_trace(plan, target, metadata, self._keep)
        finally:
            # JUnit XML has it as the system-out of the test.
            for name in FILES:
                path = self.recorder.folder / name
                if path.exists():
                    print(f"[[ATTACHMENT|{path}]]")
        summary = summarize(trace)
        self.recorder.note(trace=summary)
        return summary

    def trace_after_failure(self) -> None:
        """Trace the case of an item that broke a limit; warn where that fails, too."""
        try:
            self._trace(self.config.trace or _LEVELS_AFTER_FAILURE)
        except Exception as error:  # the failure that it should explain matters more
            warnings.warn(
                MlmsWarning(f"the failed item could not be traced: {error}"), stacklevel=2
            )

    @property
    def _seed(self) -> int:
        return self.case.loaded.manifest.evaluate.seed

    @functools.cached_property
    def _random(self) -> np.random.Generator:
        return np.random.default_rng(self._seed)

    def _batch(self, predictor: Predictor) -> Mapping[str, Array]:
        """Return the batch of the traced calls, the same for each run."""
        if self.dataset is None:
            return random_batch(predictor, self.case)
        self.dataset.check_size(self.case.batch_size)
        return self._draw(self.dataset, np.random.default_rng(self._seed))

    def _request(self, predictor: Predictor) -> PreparedRequest:
        """Prepare a request as a program would: with other elements of the dataset each time."""
        if self.dataset is None:
            arrays = self._batch(predictor)
        else:
            arrays = self._draw(self.dataset, self._random)
        return PreparedRequest(arrays, functools.partial(self._postprocess, predictor))

    def _draw(self, dataset: Dataset, random: np.random.Generator) -> Mapping[str, Array]:
        drawn: list[int] = random.integers(len(dataset), size=self.case.batch_size).tolist()
        return dataset.batch(drawn)

    def _postprocess(self, predictor: Predictor, outputs: Mapping[str, Array]) -> None:
        manifest = self.case.loaded.manifest
        output = manifest.classification
        if output is None:
            return
        size = self.case.batch_size
        axis = BatchAxis.of(output, predictor, manifest.batch_axes)
        rows = axis.rows(outputs[output.name], size)
        if output.has_class_numbers:
            class_numbers(output, rows, size)
        else:
            postprocess(table_of(output, rows, size), output)

    def _keep(self, trace: Trace) -> None:
        """Write all files of the trace so far."""
        parents = parents_of(trace)
        layers = layer_rows(trace, parents)
        kernels = kernel_rows(trace, parents)
        counters = counter_rows(trace)
        keep = self.recorder.keep
        keep("trace.npz", lambda path: save_trace(trace, path))
        keep("trace.pftrace", lambda path: _write_timeline(trace, parents.index, path))
        keep("layers.csv", lambda path: write_table(path, layers, LayerRow))
        keep("kernels.csv", lambda path: write_table(path, kernels, KernelRow))
        keep("counters.csv", lambda path: write_table(path, counters, CounterRow))


def _write_timeline(trace: Trace, parent: Array, path: Path) -> None:
    written = write_perfetto(trace, parent, path)
    if written.dropped:
        kept = written.requests - written.dropped
        text = (
            f"{path} has {kept} of {written.requests} requests, to stay small enough; "
            f"trace.npz beside it has them all"
        )
        warnings.warn(MlmsWarning(text), stacklevel=2)


def static_cost(case: Case, files: CaseFiles) -> ModelCost | None:
    """Return the cost of the model by an ONNX file; None where there is none.

    The file is the case's own or another model's of the manifest, because all models of a
    manifest are the same network. Where the framework describes its own model, that replaces this.
    """
    try:
        path = _onnx_file(case, files)
        return describe_onnx(path, case.batch_size) if path else None
    except MlmsError:
        return None


def _onnx_file(case: Case, files: CaseFiles) -> Path | None:
    graph = files.model["graph"]
    if graph.suffix == ".onnx":
        return graph
    for model in case.loaded.manifest.models:
        artifact = case.loaded.model_files(model)["graph"]
        if not is_remote(artifact.source) and artifact.source.endswith(".onnx"):
            return fetch(without_record(artifact), Path())  # only its digest is checked
    return None
