"""A manifest for the files of models, and data, that can run at once."""

from __future__ import annotations

from pytest_mlms.author.draft.data import pack_folder
from pytest_mlms.author.draft.dataset import dataset_of
from pytest_mlms.author.draft.findings import find_out
from pytest_mlms.author.draft.model_files import ModelFiles
from pytest_mlms.author.draft.opening import folder_in_archive, open_model, weights_of
from pytest_mlms.author.draft.parts import Draft, ModelPart
from pytest_mlms.author.draft.request import DraftRequest
from pytest_mlms.author.draft.sample import signature_text, take_sample
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.provide.artifacts.digest import sha256_of

_HEADING = (
    "Drafted by mlms init, which looked at the files, the data and a run. What it could not know "
    "says that it is a guess."
)


def draft_manifest(request: DraftRequest) -> Draft:
    """Return a manifest for models; data is packed beside it where it must be.

    Raises MlmsError, which says what to do.
    """
    first = request.models[0]
    with open_model(first, request) as predictor:
        _say_signature(first, predictor, request)
        findings = find_out(first, predictor, request)
        sample = take_sample(first, predictor, findings, request)
    parts = [_model_part(first, request)]
    for model in request.models[1:]:
        with open_model(model, request) as predictor:
            _say_signature(model, predictor, request)
            sample.compare(model, predictor, request)
        parts.append(_model_part(model, request))
    dataset, outputs = dataset_of(request, findings)
    comment = ""
    if findings.left_out:
        left_out = ", ".join(findings.left_out)
        comment = f"without outputs that have no row for each input: {left_out}"
    return Draft(
        name=request.name,
        task=request.task or findings.task,
        task_comment=comment,
        models=parts,
        inputs=findings.inputs,
        outputs=outputs,
        dataset=dataset,
        classes=findings.classes,
        devices=[findings.device],
        batch_sizes=findings.batch_sizes,
        threads=request.threads,
        heading=_HEADING,
        seconds=findings.seconds,
        rounding=sample.rounding,
    )


def _say_signature(model: ModelFiles, predictor: Predictor, request: DraftRequest) -> None:
    version = predictor.versions.get(model.framework, "")
    request.say(f"{model.graph}: {model.framework} {version}")
    for title, tensors in (("takes", predictor.inputs), ("gives", predictor.outputs)):
        for tensor in tensors:
            request.say(f"  {title} {tensor.name} {signature_text(tensor)}".rstrip())


def _model_part(model: ModelFiles, request: DraftRequest) -> ModelPart:
    """Return the entry of a model; a folder is packed into an archive."""
    graph = model.graph
    member = ""
    if model.is_archive:
        member = f"#{folder_in_archive(model, request).as_posix()}"
    elif graph.is_dir():
        graph = request.beside("model.zip")
        pack_folder(model.graph, graph)
        request.say(f"packed {model.graph} into {graph}")
        member = "#."
    weights = weights_of(model)
    sha256 = {"graph": sha256_of(graph)}
    if weights is not None:
        sha256["weights"] = sha256_of(weights)
    return ModelPart(
        framework=model.framework,
        graph=request.written(graph) + member,
        weights=None if weights is None else request.written(weights),
        sha256=sha256,
        options=request.options.get(model.framework, {}),
        variant=model.variant,
    )
