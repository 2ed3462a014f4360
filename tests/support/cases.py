"""Cases of the digits manifest, for tests of what takes a case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_mlms.core.records import Kind, Stack
from pytest_mlms.manifest.load import load
from pytest_mlms.provide.cases import Case, cases_of
from tests.support.project import MANIFEST

HERE = Stack("here", "onnxruntime", interpreter="current")


def digits_case(kind: Kind = "performance", **changes: Any) -> Case:
    """Return the manifest's first case of a kind, with some fields changed."""
    loaded = load(MANIFEST)
    found = cases_of(loaded, kind, lambda framework: [HERE], lambda framework: HERE)
    return replace(found[0], **changes)


def faulty_case(framework: str = "faulty") -> Case:
    """Return a case for tests/support/predictors/faulty.py."""
    case = digits_case()
    model = case.model.model_copy(update={"framework": framework})
    stack = replace(HERE, framework="faulty")
    manifest = case.loaded.manifest.model_copy(update={"models": [model]})
    loaded = replace(case.loaded, manifest=manifest)
    return replace(case, loaded=loaded, model=model, stack=stack)
