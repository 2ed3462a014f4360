"""Cases of recorded items, where their manifests and files are still those that were measured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.results.item_result import definition_of, load_identity
from pytest_mlms.keep.results.line import load_of
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import Model
from pytest_mlms.provide.cases import Case

COMPARED = "compared"
"""The folder below that of runs in which ``mlms compare`` leaves manifests."""


def case_of_line(line: Mapping[str, Any], results: Path) -> Case:
    """Return the case of an item as its manifest has it now.

    Raises MlmsError where that is another one, or where files are not those any more. The manifest
    is one of this project: ``results``, and each folder with results, has files of strangers.
    """
    path = Path(line["manifest"]["path"])
    if not is_of_project(path, results):
        problem = f"results have the manifest {path}, which is none of {Path.cwd()}"
        raise MlmsError(f"{problem}; run it in the project that has the manifest")
    if not path.is_file():
        raise MlmsError(f"there is no {path} below {Path.cwd()}; run it where the manifest is")
    loaded = load_manifest(path)
    model = _check_model(loaded, line)
    measured = (line.get("dataset") or {}).get("sha256")
    if not line.get("shape") and measured != loaded.dataset_digest:
        problem = "the dataset is not the one that was measured"
        raise MlmsError(f"{loaded.place('dataset')}: {problem}; restore it")
    return _case(loaded, model, line)


def is_of_project(path: Path, results: Path) -> bool:
    """Return whether a manifest is one of this folder, and none that a run may have brought.

    pytest loads the conftest.py beside it.
    """
    here = Path.cwd()
    full = Path(os.path.abspath(path))
    if full.parent == results.absolute() / COMPARED:  # what mlms compare writes there
        return not any((full.parent / name).exists() for name in ("results.jsonl", "conftest.py"))
    is_ours = full.is_relative_to(here) and not str(path).startswith("-")
    for folder in (*full.parents, *full.resolve().parents):
        is_of_run = (folder / "results.jsonl").exists() or folder == results.resolve()
        is_ours = is_ours and not is_of_run
    return is_ours


def _check_model(loaded: LoadedManifest, line: Mapping[str, Any]) -> Model:
    models = loaded.manifest.models
    variant = line.get("variant") or None
    wanted = (line["framework"], variant)
    found = [model for model in models if (model.name, model.variant) == wanted]
    if not found:
        name = f"{line['framework']} {variant}" if variant else line["framework"]
        problem = f"there is no model for {name} any more"
        raise MlmsError(f"{loaded.place('models')}: {problem}; restore it")
    index = models.index(found[0])
    digests = loaded.model_digests(found[0])
    for role, digest in line["model"]["sha256"].items():
        if digests.get(role) != digest:
            problem = f"the {role} is not the one that was measured ({digest[:12]}…)"
            raise MlmsError(f"{loaded.place('models', index, role)}: {problem}; restore it")
    declared = (line["stack"].get("declared") or {}).get("options") or {}
    if {**to_plain(found[0].options), **declared} != line["options"]:
        place = loaded.place("models", index, "options")
        raise MlmsError(f"{place}: the options are not those that were measured; restore them")
    return found[0]


def _case(loaded: LoadedManifest, model: Model, line: Mapping[str, Any]) -> Case:
    evaluate = loaded.manifest.evaluate
    device = line["device"]
    if device not in evaluate.devices:
        place = loaded.place("evaluate", "devices")
        raise MlmsError(f"{place}: the device {device} isn't there any more; restore it")
    shape = line.get("shape")
    if shape and shape not in evaluate.named_shapes:
        place = loaded.place("evaluate", "shapes")
        raise MlmsError(f"{place}: the shape {shape} isn't there any more; restore it")
    caches = line.get("caches")
    if caches != evaluate.caches and line["kind"] in ("performance", "upgrade"):
        place = loaded.place("evaluate", "caches")
        raise MlmsError(f"{place}: caches were {caches or 'not declared'}; restore that")
    size = line["batch_size"]
    if size not in evaluate.batch_sizes:
        place = loaded.place("evaluate", "batch_sizes")
        raise MlmsError(f"{place}: the batch size {size} isn't there any more; restore it")
    recorded = line["stack"]
    stack = Stack(
        recorded["name"],
        model.name,
        variant=model.variant or "",
        threads=recorded.get("threads"),
    )
    case = Case(line["kind"], loaded, model, stack, device, size, None, shape=shape)
    case = replace(case, scenario=_scenario(case, line))
    definition = definition_of(case)
    if (line.get("definition") or definition) != definition:
        problem = "inputs, outputs, their files or the seed are not those that were measured"
        raise MlmsError(f"{loaded.place('inputs')}: {problem}; restore them")
    return case


def _scenario(case: Case, line: Mapping[str, Any]) -> str | None:
    """Return what ids call a line's scenario now: of a load that with its keys but the limit."""
    if line["scenario"] is None:
        return None
    measured = load_of(line.get("load") or {})
    for label in case.loaded.manifest.evaluate.scenario_labels:
        load = load_of(to_plain(load_identity(replace(case, scenario=label)) or {}))
        if load == measured and (load or label == line["scenario"]):
            return label
    place = case.loaded.place("evaluate", "scenarios")
    raise MlmsError(f"{place}: there is no {line['scenario']} as measured any more; restore it")
