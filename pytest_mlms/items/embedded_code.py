"""Datasets of manifests whose code agents run: it reads the files, and makes inputs or scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.agent.helpers import CodeAgent, CodeDataset, CodeSpec, open_code
from pytest_mlms.measure.pipeline import Dataset, open_dataset
from pytest_mlms.measure.pipeline.step_files import class_numbers_of, with_local_files
from pytest_mlms.provide.cases import Case
from pytest_mlms.resources import launch_of
from pytest_mlms.session import Session

if TYPE_CHECKING:
    from pytest_mlms.provide.artifacts.fetch import CaseFiles


def open_with_code(
    path: Path, case: Case, files: CaseFiles, session: Session, item: pytest.Item
) -> Dataset:
    """Open the dataset of a case whose code makes inputs or scores, in an agent of its stack.

    The agent is started when it is first needed, and again where the code has ended it.
    """
    loaded = case.loaded
    origin = loaded.origin
    assert origin is not None, "only originals have code"
    makes_inputs = origin.preprocess is not None
    inputs = [with_local_files(spec, files.steps) for spec in loaded.manifest.inputs]
    manifest = loaded.manifest
    dataset = open_dataset(
        path,
        _as_file(inputs) if makes_inputs else inputs,
        loaded.place("dataset", "source"),
        manifest.dataset.source if manifest.dataset else "",
        manifest.label_form,
        class_numbers_of(manifest, files.steps),
    )
    spec = CodeSpec(
        loaded=loaded,
        stack=case.stack.name,
        launch=launch_of(case, files, session, item),
        predictor=session.predictors[case.stack.framework],
        log=session.next_log("code"),
        timeout=session.config.timeout,
    )
    known = {field.name: getattr(dataset, field.name) for field in fields(Dataset)}
    return CodeDataset(
        **{**known, "inputs": tuple(inputs)},
        runner=partial(_running, spec, case, session),
        makes_inputs=makes_inputs,
        makes_scores=origin.postprocess is not None and case.loaded.manifest.has_accuracy,
    )


def _running(spec: CodeSpec, case: Case, session: Session) -> CodeAgent:
    key = (case.loaded.path, case.stack)
    return session.code.open(key, partial(open_code, spec))


def _as_file(inputs: Sequence[Input]) -> list[Input]:
    """Return the first input as one whose elements are files as they are."""
    first = inputs[0]
    return [first.model_copy(update={"type": "image", "layout": "NCHW"})]
