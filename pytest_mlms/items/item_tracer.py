"""A trace of an item: made at the levels asked for, kept in the item's folder, and told in its
line.
"""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.agent.process import Array
from pytest_mlms.artifacts.fetch import CaseFiles, fetch
from pytest_mlms.cases import Case
from pytest_mlms.config import Config
from pytest_mlms.errors import MlmsError
from pytest_mlms.evaluate.performance import random_batch
from pytest_mlms.pipeline import Dataset, postprocess
from pytest_mlms.recorder import MlmsWarning, Recorder
from pytest_mlms.structure.onnx_graph import describe_onnx
from pytest_mlms.trace.correlate import Parents
from pytest_mlms.trace.counters import CounterRow, counter_rows
from pytest_mlms.trace.exporters.perfetto import write_perfetto
from pytest_mlms.trace.runner import Inspection, inspect
from pytest_mlms.trace.spans import Trace, save_trace
from pytest_mlms.trace.summary import summarize
from pytest_mlms.trace.tables import (
    KernelRow,
    LayerRow,
    kernel_rows,
    layer_rows,
    parents_of,
    write_table,
)

__all__ = ["FILES", "MlmsUnseen", "Tracer"]

FILES = ("trace.pftrace", "trace.npz", "layers.csv", "kernels.csv", "counters.csv")
_OF_A_FAILURE = ("layer", "hardware")  # unless --mlms-trace says more


class MlmsUnseen(MlmsWarning):
    """A level that was asked for has nothing to show here, or less than it should."""


@dataclass(frozen=True)
class Tracer:
    """Traces one case, for its own item or for one that failed."""

    case: Case
    files: CaseFiles
    dataset: Dataset | None
    open_predictor: Callable[..., AbstractContextManager[Predictor]]
    recorder: Recorder
    config: Config

    def trace(self, levels: Sequence[str]) -> dict[str, Any]:
        """Trace at these levels; return what the item's line says of it. Raises AgentError."""
        plan = Inspection(
            tuple(levels), self.config.duration, self.config.budget, self.config.trace_functions
        )
        about: dict[str, Any] = {
            "manifest": self.case.loaded.manifest.name,
            "case": self.case.id,
            "batch_size": self.case.batch_size,
        }
        about.update(
            framework=self.case.stack.framework, device=self.case.device, kind=self.case.kind
        )
        about["static"] = _static_counts(self.case, self.files)
        about["wall_offset_ns"] = (
            time.time_ns() - time.monotonic_ns()
        )  # the clock may be set before an export
        try:
            made = inspect(plan, self.open_predictor, self._request, self._batch, self._keep, about)
        finally:
            self._attach()
        summary = summarize(made)
        self.recorder.note(trace=summary)
        return summary

    @contextlib.contextmanager
    def on_fail(self) -> Iterator[None]:
        """Trace the case where a limit is found broken inside, if the options ask for it.

        The failure stays.
        """
        try:
            yield
        except pytest.fail.Exception:
            if self.config.trace_on_fail:
                self._after_failure()
            raise

    def settle(self, summary: Mapping[str, Any]) -> None:
        """Pass; warn of each level without anything to show or cut short, and fail for it under
        --mlms-strict.
        """
        words = [f"level {level}: {reason}" for level, reason in summary["unseen"].items()]
        words += [
            f"level {level} was cut short: {reason}" for level, reason in summary["faults"].items()
        ]
        self.recorder.settle_without_limits(words, MlmsUnseen, self.config.strict)

    def _after_failure(self) -> None:
        try:
            self.trace(self.config.trace or _OF_A_FAILURE)
        except Exception as error:  # the failure that it should explain matters more
            warnings.warn(
                MlmsWarning(f"the failed item could not be traced: {error}"), stacklevel=2
            )

    def _batch(self, predictor: Predictor) -> Mapping[str, Array]:
        if self.dataset is None:
            return random_batch(
                predictor, self.case.batch_size, self.case.loaded.manifest.evaluate.seed
            )[0]
        return self.dataset.batch(
            self._draw(np.random.default_rng(self.case.loaded.manifest.evaluate.seed))
        )

    @functools.cached_property
    def _random(self) -> np.random.Generator:
        return np.random.default_rng(self.case.loaded.manifest.evaluate.seed)

    def _draw(self, random: np.random.Generator) -> list[int]:
        assert self.dataset is not None
        drawn: list[int] = random.integers(len(self.dataset), size=self.case.batch_size).tolist()
        return drawn

    def _request(
        self, predictor: Predictor
    ) -> tuple[Mapping[str, Array], Callable[[Mapping[str, Array]], object]]:
        """Make a request as a program would.

        Elements of the dataset, and what the outputs go through.
        """
        arrays = (
            self._batch(predictor)
            if self.dataset is None
            else self.dataset.batch(self._draw(self._random))
        )
        output = self.case.loaded.manifest.classification
        if output is None:
            return arrays, lambda outputs: None
        return arrays, lambda outputs: postprocess(outputs[output.name], output)

    def _keep(self, trace: Trace) -> None:
        parents = parents_of(trace)
        layers, kernels = layer_rows(trace, parents), kernel_rows(trace, parents)
        counters = counter_rows(trace, parents)
        self.recorder.keep("trace.npz", lambda path: save_trace(trace, path))
        self.recorder.keep("trace.pftrace", lambda path: _write_timeline(trace, parents, path))
        self.recorder.keep("layers.csv", lambda path: write_table(path, layers, LayerRow))
        self.recorder.keep("kernels.csv", lambda path: write_table(path, kernels, KernelRow))
        self.recorder.keep("counters.csv", lambda path: write_table(path, counters, CounterRow))

    def _attach(self) -> None:
        """Print the files in the form that CI servers attach to a test, which JUnit XML takes as
        its system-out.
        """
        for name in FILES:
            path = self.recorder.folder / name
            if path.exists():
                print(f"[[ATTACHMENT|{path}]]")


def _static_counts(case: Case, files: CaseFiles) -> list[dict[str, Any]]:
    """Return operations and bytes of each layer by an ONNX file, for rooflines; nothing where they
    can't be had.

    It is the case's own, or another of the manifest, for its models are all the same network; where
    the case's framework tells what its model is made of, that counts instead.
    """
    try:
        path = _onnx_file(case, files)
        return [layer.work for layer in describe_onnx(path, case.batch_size).layers] if path else []
    except MlmsError:
        return []


def _onnx_file(case: Case, files: CaseFiles) -> Path | None:
    if files.model["graph"].suffix == ".onnx":
        return files.model["graph"]
    for model in case.loaded.manifest.models:
        artifact = case.loaded.model_files(model)["graph"]
        if artifact.source.endswith(".onnx") and "://" not in artifact.source:
            return fetch(artifact, Path())  # it is here: only its digest is checked
    return None


def _write_timeline(trace: Trace, parents: Parents, path: Path) -> None:
    written = write_perfetto(trace, parents.index, path)
    if written.dropped:
        text = f"{path} has {written.requests - written.dropped} of {written.requests} requests, to stay small enough"
        warnings.warn(MlmsWarning(f"{text}; trace.npz beside it has them all"), stacklevel=2)
