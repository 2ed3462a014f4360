"""A manifest for the files of models, and data, that can run at once.

Several models are one network in several formats, so their results for a batch are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from mlms_predictors import Tensor
from mlms_predictors._run.protocol import KEPT_STATE

from pytest_mlms.author.draft.axes import may_be_alike
from pytest_mlms.author.draft.data import pack_folder
from pytest_mlms.author.draft.dataset import dataset_of
from pytest_mlms.author.draft.findings import Findings, find_out
from pytest_mlms.author.draft.inputs import signature_text
from pytest_mlms.author.draft.model_files import ModelFiles
from pytest_mlms.author.draft.opening import (
    DraftRequest,
    draw_batch,
    folder_in_archive,
    open_model,
    weights_of,
    without_log,
)
from pytest_mlms.author.draft.parts import Draft, ModelPart
from pytest_mlms.author.draft.table_arrays import arrays_of_table
from pytest_mlms.author.draft.table_files import ColumnsData
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.closeness import Tolerance, differences
from pytest_mlms.provide.artifacts.digest import sha256_of
from pytest_mlms.provide.stacks.together import make_together

_HEADING = (
    "Drafted by mlms init, which looked at the files, the data and a run. What it could not know "
    "says that it is a guess."
)

_ROUNDING_SHARE = 1e-3  # of the largest output, between frameworks
_LEAST_ROUNDING = 1e-6
_ADVICE = "or write a manifest for each"


def draft_manifest(request: DraftRequest) -> Draft:
    """Return a manifest for models; data is packed beside it where it must be.

    Raises MlmsError, which says what to do.
    """
    _check_table(request)
    make_together(list(request.stacks.values()), request.cache, request.show)
    first = request.models[0]
    with open_model(first, request) as predictor:
        _say_signature(first, predictor, request)
        if isinstance(request.data, ColumnsData):
            data = arrays_of_table(request.data, first, predictor, request)
            request = replace(request, data=data)
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
        comment = f"without outputs that are no arrays with a row for each input: {left_out}"
        request.say(f"{first.graph}: {comment}")
    draft = Draft(
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
    if draft.guesses:
        advice = f"say yours: mlms init … {draft.guesses}"
        request.say(f"{first.graph}: sizes of free axes are guesses; {advice}")
    return draft


def _check_table(request: DraftRequest) -> None:
    """Raise MlmsError for columns that are said of data that is no table."""
    for option, names in (
        ("--target", request.target_columns),
        ("--without", request.without_columns),
    ):
        if names and not isinstance(request.data, ColumnsData):
            data = "no data" if request.data is None else f"{request.data.path}, which is no table"
            problem = f"{option} {names[0]} is a column of a table, and there is {data}"
            raise MlmsError(f"{problem}; leave it out, or name a table: --data data.csv")


def _say_signature(model: ModelFiles, predictor: Predictor, request: DraftRequest) -> None:
    version = predictor.versions.get(model.framework, "")
    request.say(f"{model.graph}: {model.framework} {version}")
    for title, tensors in (("takes", predictor.inputs), ("gives", predictor.outputs)):
        for tensor in tensors:
            request.say(f"  {title} {tensor.name} {signature_text(tensor)}".rstrip())
    state = (predictor.device_facts or {}).get(KEPT_STATE)
    if state:
        problem = f"keeps a state from call to call ({state}), so that outputs may depend on it"
        request.say(f"  {problem}: make it an input and an output")


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


@dataclass(frozen=True)
class Sample:
    """A model's signature, and its outputs for a batch, by the names of inputs and outputs."""

    model: ModelFiles
    takes: Sequence[Tensor]
    gives: Sequence[Tensor]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    @property
    def largest(self) -> float:
        """The largest absolute value of the outputs."""
        numbers = [array for array in self.outputs.values() if array.dtype.kind != "U"]
        return max((float(np.nanmax(np.abs(array), initial=0)) for array in numbers), default=0.0)

    @property
    def rounding(self) -> float:
        """The difference that is taken for rounding."""
        return max(_ROUNDING_SHARE * self.largest, _LEAST_ROUNDING)

    def compare(self, model: ModelFiles, predictor: Predictor, request: DraftRequest) -> None:
        """Say how much the outputs of another model differ, where it is more than by rounding.

        Raises MlmsError where it takes or gives other arrays.
        """
        self._check_names(model, predictor)
        self._check_inputs(model, predictor)
        try:
            outputs = predictor.predict(self.inputs)
        except Refused as error:
            problem = f"{model.graph} does not take the arrays of {self.model.graph}"
            advice = f"export it with the same inputs, {_ADVICE}"
            raise MlmsError(f"{problem}; {advice}: {without_log(error)}") from error
        largest = self._largest_difference(outputs, model)
        if largest > self.rounding and not model.variant:
            request.say(
                f"  differs from {self.model.graph} by {largest:.2g} for the same inputs, where "
                f"outputs are {self.largest:.2g} at most: see whether both are the same network"
            )

    def _check_names(self, model: ModelFiles, predictor: Predictor) -> None:
        for kind, ours, theirs in (
            ("inputs", self.takes, predictor.inputs),
            ("outputs", self.gives, predictor.outputs),
        ):
            expected = sorted(tensor.name for tensor in ours)
            found = sorted(tensor.name for tensor in theirs)
            if expected != found:
                problem = (
                    f"{model.graph} has the {kind} {', '.join(found)}, "
                    f"and {self.model.graph} {', '.join(expected)}"
                )
                raise MlmsError(f"{problem}; export them with the same names, {_ADVICE}")

    def _check_inputs(self, model: ModelFiles, predictor: Predictor) -> None:
        by_name = {tensor.name: tensor for tensor in predictor.inputs}
        for tensor in self.takes:
            other = by_name[tensor.name]
            if not may_be_alike(tensor, other):
                problem = (
                    f"{model.graph} takes {tensor.name!r} as {signature_text(other)}, "
                    f"and {self.model.graph} as {signature_text(tensor)}"
                )
                raise MlmsError(f"{problem}; export them with the same inputs, {_ADVICE}")

    def _largest_difference(self, outputs: Mapping[str, Array], model: ModelFiles) -> float:
        largest = 0.0
        for name, expected in self.outputs.items():
            ours = outputs[name]
            if ours.shape != expected.shape:
                sides = " and ".join(_by_axes(array.shape) for array in (ours, expected))
                problem = f"{model.graph} and {self.model.graph} give {name!r} of {sides}"
                raise MlmsError(f"{problem}; export them alike, {_ADVICE}")
            found = differences(ours, expected, Tolerance(0.0, 0.0)).absolute
            largest = max(largest, float(found.max(initial=0.0)))
        return largest


def take_sample(
    model: ModelFiles, predictor: Predictor, findings: Findings, request: DraftRequest
) -> Sample:
    """Return a batch, and the outputs of the first model for it."""
    size = findings.batch_sizes[0]
    batch = draw_batch(predictor, findings.inputs, request.data, size)
    outputs = predictor.predict(batch)
    compared = {part.name: outputs[part.name] for part in findings.outputs}
    return Sample(model, predictor.inputs, predictor.outputs, batch, compared)


def _by_axes(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "one number"
