"""The interface for Python: names for tests, conftest.py files and scripts of users.

docs/api.md describes each. They stay wherever we keep what they name. A module is imported when
one of its names is used, so that importing this one costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_mlms.core.errors import (
        AgentError,
        ArtifactError,
        DatasetError,
        DeviceInUse,
        ManifestError,
        MlmsError,
        OutputError,
        StackError,
        Unavailable,
    )
    from pytest_mlms.core.records import Stack
    from pytest_mlms.decide.upgrade.agents import AgentPair
    from pytest_mlms.decide.upgrade.interleave import OpenPair
    from pytest_mlms.evaluation import evaluate, judge, read_results
    from pytest_mlms.items.item_tracer import ItemTracer
    from pytest_mlms.keep.results.recorder import Recorder
    from pytest_mlms.manifest.load import LoadedManifest
    from pytest_mlms.manifest.load import load as load_manifest
    from pytest_mlms.measure.agent.predictor import Predictor
    from pytest_mlms.measure.evaluate.kept_outputs import Reference
    from pytest_mlms.measure.pipeline import (
        Dataset,
        open_dataset,
        postprocess,
        preprocess,
        top_k,
    )
    from pytest_mlms.measure.trace.spans import Trace
    from pytest_mlms.measure.trace.storage import load_trace
    from pytest_mlms.predict.answers import Answer, DetectedObject, RankedLabel
    from pytest_mlms.predict.inputs import Given
    from pytest_mlms.predict.model import Model, Prediction, Profile, open_model
    from pytest_mlms.provide.artifacts.fetch import CaseFiles
    from pytest_mlms.provide.cases import Case

__all__ = [
    "AgentError",
    "AgentPair",
    "Answer",
    "ArtifactError",
    "Case",
    "CaseFiles",
    "Dataset",
    "DatasetError",
    "DetectedObject",
    "DeviceInUse",
    "Given",
    "ItemTracer",
    "LoadedManifest",
    "ManifestError",
    "MlmsError",
    "Model",
    "OpenPair",
    "OutputError",
    "Prediction",
    "Predictor",
    "Profile",
    "RankedLabel",
    "Recorder",
    "Reference",
    "Stack",
    "StackError",
    "Trace",
    "Unavailable",
    "evaluate",
    "judge",
    "load_manifest",
    "load_trace",
    "open_dataset",
    "open_model",
    "postprocess",
    "preprocess",
    "read_results",
    "top_k",
]

_MODULES = {
    "AgentPair": "decide.upgrade.agents",
    "Answer": "predict.answers",
    "Case": "provide.cases",
    "CaseFiles": "provide.artifacts.fetch",
    "Dataset": "measure.pipeline",
    "DetectedObject": "predict.answers",
    "Given": "predict.inputs",
    "ItemTracer": "items.item_tracer",
    "LoadedManifest": "manifest.load",
    "Model": "predict.model",
    "OpenPair": "decide.upgrade.interleave",
    "Prediction": "predict.model",
    "Predictor": "measure.agent.predictor",
    "Profile": "predict.model",
    "RankedLabel": "predict.answers",
    "Recorder": "keep.results.recorder",
    "Reference": "measure.evaluate.kept_outputs",
    "Stack": "core.records",
    "Trace": "measure.trace.spans",
    "evaluate": "evaluation",
    "judge": "evaluation",
    "load_manifest": "manifest.load",
    "load_trace": "measure.trace.storage",
    "open_dataset": "measure.pipeline",
    "open_model": "predict.model",
    "postprocess": "measure.pipeline",
    "preprocess": "measure.pipeline",
    "read_results": "evaluation",
    "top_k": "measure.pipeline",
}
"""Name -> the module that has it; the errors are all in one."""

_NAMES = {"load_manifest": "load"}
"""Name -> what its module calls it, where that differs."""


if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a name from its module. Raises AttributeError for a name that isn't listed."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"pytest_mlms.{_MODULES.get(name, 'core.errors')}")
        found = globals()[name] = getattr(module, _NAMES.get(name, name))
        return found


def __dir__() -> list[str]:
    return __all__
