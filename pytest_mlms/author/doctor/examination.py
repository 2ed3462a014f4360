"""A manifest's model and a sample of its dataset, opened for the search."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_mlms.author.doctor.search import Patient
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.manifest import LoadedManifest
from pytest_mlms.manifest.schema import Model
from pytest_mlms.measure.agent.channel import temporary_log
from pytest_mlms.measure.agent.launching import launch_case
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.pipeline import Dataset, without_corrupt
from pytest_mlms.measure.pipeline.dataset import open_dataset_of
from pytest_mlms.measure.pipeline.selection import selected_elements
from pytest_mlms.provide.artifacts.fetch import fetch_files
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.bytecode import advice_on_bytecode
from pytest_mlms.provide.stacks.installers import Show

_TIMEOUT = 300.0  # seconds for a reply


@dataclass(frozen=True)
class Examination:
    """The subject: a model of a manifest on a stack, with at most so many inputs."""

    loaded: LoadedManifest
    model: Model
    stack: Stack
    inputs: int
    predictors: Mapping[str, Path]
    cache: Path
    allow_code: bool
    show: Show
    note: Callable[[str], None]


@contextlib.contextmanager
def open_patient(examination: Examination) -> Iterator[Patient]:
    """Load the model in an agent, and open the sample. Raises MlmsError."""
    loaded = examination.loaded
    manifest = loaded.manifest
    if loaded.origin is not None and loaded.origin.code:
        problem = f"{loaded.place()}: its Python makes the inputs, and what is tried here are steps"
        raise MlmsError(f"{problem}; write steps into the manifest that 'mlms import' makes")
    entry = manifest.dataset
    if entry is None or not manifest.has_accuracy:
        problem = f"{loaded.place()}: there is nothing to measure accuracy with"
        raise MlmsError(f"{problem}; add a dataset with labels, and an output that its task scores")
    size = max(manifest.evaluate.batch_sizes)
    device = manifest.evaluate.devices[0]
    case = Case("accuracy", loaded, examination.model, examination.stack, device, size, None)
    files = fetch_files(loaded, examination.model, examination.cache)
    assert files.dataset is not None, "the manifest has a dataset"
    dataset = open_dataset_of(loaded, files.dataset, files.steps)
    dataset = without_corrupt(dataset, entry.skip_corrupt)
    predictor = examination.predictors[examination.stack.framework]
    launch = launch_case(case, files.model, predictor, examination.cache, show=examination.show)
    advice = "" if examination.stack.container else advice_on_bytecode(launch)
    if advice:
        examination.note(advice)
    with temporary_log("mlms-doctor-") as log:
        spec = PredictorSpec(
            case=case,
            launch=launch,
            predictor=predictor,
            files=files.model,
            log=log,
            timeout=_TIMEOUT,
            allow_code=examination.allow_code,
        )
        with open_predictor(spec) as opened:
            sample = sampled(dataset, examination.inputs)
            yield Patient(manifest, opened, sample, files.steps, size)


def sampled(dataset: Dataset, most: int) -> Dataset:
    """Return at most so many elements of a dataset, drawn with a fixed seed, in their order."""
    if len(dataset) <= most:
        return dataset
    drawn = np.random.default_rng(0).permutation(len(dataset))[:most]
    chosen = sorted(drawn.tolist())
    return selected_elements(dataset, chosen)
