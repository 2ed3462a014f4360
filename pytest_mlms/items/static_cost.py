"""Static cost of the model of a case, by an ONNX file of its manifest."""

from __future__ import annotations

from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.measure.structure.cost import ModelCost
from pytest_mlms.measure.structure.onnx_graph import describe_onnx
from pytest_mlms.provide.artifacts.fetch import CaseFiles, fetch
from pytest_mlms.provide.artifacts.unpinned import without_record
from pytest_mlms.provide.cases import Case


def static_cost(case: Case, files: CaseFiles) -> ModelCost | None:
    """Return the cost of the model by an ONNX file; None where there is none.

    The file is the case's own or that of another model of the manifest, because all models of a
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
