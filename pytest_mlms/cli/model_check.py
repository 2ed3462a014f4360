"""Comparison of a manifest with its ONNX files, as far as it is possible without running them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from mlms_predictors import Tensor

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Artifact
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import BATCH, Input, Output
from pytest_mlms.measure.agent.signature import check_fit, check_signature, named_tensors
from pytest_mlms.measure.evaluate.inputs import input_shape, known_axes
from pytest_mlms.measure.pipeline import read_labels
from pytest_mlms.measure.structure.onnx_signature import OnnxSignature, read_signature


def check_models(loaded: LoadedManifest) -> Iterator[MlmsError]:
    """Yield what doesn't fit between a manifest and each of its local ONNX files.

    Files that are missing are left out. Raises ImportError without onnx.
    """
    for model in loaded.manifest.models:
        graph = loaded.model_files(model)["graph"]
        if not _is_local_onnx(graph):
            continue
        try:
            signature = read_signature(Path(graph.source))
        except MlmsError as error:
            yield MlmsError(f"{graph.place}: {error}")
        else:
            yield from _errors_of(loaded, signature)


def _is_local_onnx(graph: Artifact) -> bool:
    path = Path(graph.source)
    return graph.member is None and path.suffix == ".onnx" and path.is_file()


def _errors_of(loaded: LoadedManifest, signature: OnnxSignature) -> Iterator[MlmsError]:
    try:
        inputs = named_tensors(loaded, "inputs", signature.inputs).tensors
        outputs = named_tensors(loaded, "outputs", signature.outputs).tensors
        check_signature(loaded, inputs, outputs)
    except MlmsError as error:
        yield error
        return
    tensors = {tensor.name: tensor for tensor in inputs}
    for number, spec in enumerate(loaded.manifest.inputs):
        problem = _input_error(loaded, spec, tensors[spec.name])
        if problem:
            yield MlmsError(f"{loaded.place('inputs', number)}: {problem}")
    yield from _output_errors(loaded, outputs)


def _error_of(check: Callable[[], object]) -> MlmsError | None:
    """Return what a check raises; None where it raises nothing."""
    try:
        check()
    except MlmsError as error:
        return error
    return None


def _input_error(loaded: LoadedManifest, spec: Input, tensor: Tensor) -> MlmsError | None:
    """Return the first thing that is wrong with the shapes of an input."""
    check = _check_random if loaded.manifest.dataset is None else _check_dataset
    evaluate = loaded.manifest.evaluate
    checks = (
        [partial(check, spec, tensor)] if not (evaluate.named_shapes and spec.named_axes) else []
    )
    checks += [
        partial(_check_random, spec.sized(sizes), tensor)
        for sizes in evaluate.named_shapes.values()
    ]
    for size in evaluate.batch_sizes:
        for check_size in checks:
            error = _error_of(partial(check_size, size))
            if error:
                return error
    return None


def _check_random(spec: Input, tensor: Tensor, size: int) -> None:
    check_fit(tensor, tensor.dtype, known_axes(spec, size))
    check_fit(tensor, tensor.dtype, input_shape(tensor, spec, size))


def _check_dataset(spec: Input, tensor: Tensor, size: int) -> None:
    """Check what is known of a batch; a dataset's own arrays have any shape behind the batch."""
    axes = known_axes(spec, size)
    if not axes and tensor.shape:
        axes = [size, *tensor.shape[1:]]
    check_fit(tensor, tensor.dtype, axes)


def _output_errors(loaded: LoadedManifest, outputs: Sequence[Tensor]) -> Iterator[MlmsError]:
    """Yield errors of outputs: their shapes, and the classes of the classification."""
    shapes = {tensor.name: tensor.shape for tensor in outputs}
    for number, output in enumerate(loaded.manifest.outputs):
        shape = shapes[output.name]
        if output.shape and shape and not _may_be(output.shape, shape):
            place = loaded.place("outputs", number)
            found = f"output {output.name!r} is {shape} by the model"
            yield MlmsError(f"{place}: {found}; correct its shape in the manifest")
            return
    yield from _class_errors(loaded, shapes)


def _may_be(written: Sequence[int | str], shape: Sequence[int | None]) -> bool:
    """Return whether an output of a shape, None for a free axis, may be as a manifest says."""
    if len(written) != len(shape):
        return False
    pairs = zip(written, shape, strict=True)
    return all(size in (BATCH, axis) or axis is None for size, axis in pairs)


def known_classes(loaded: LoadedManifest) -> int | None:
    """Return how many classes the local ONNX files have; None where they don't tell.

    Raises ImportError without onnx, MlmsError for a file that can't be read.
    """
    output = loaded.manifest.classification
    if output is None:
        return None
    for model in loaded.manifest.models:
        graph = loaded.model_files(model)["graph"]
        if not _is_local_onnx(graph):
            continue
        signature = read_signature(Path(graph.source))
        for tensor in named_tensors(loaded, "outputs", signature.outputs).tensors:
            classes = _axes_of_classes(output, tensor.shape)
            if tensor.name == output.name and len(classes) == 1:
                return classes[0]
    return None


def _axes_of_classes(output: Output, shape: Sequence[int | None]) -> list[int | None]:
    """Return the axes of an output behind its batch that aren't 1."""
    others = list(shape)
    if others and not output.batch:
        del others[output.batch_axis or 0]
    return [axis for axis in others if axis != 1]


def _class_errors(
    loaded: LoadedManifest, shapes: Mapping[str, Sequence[int | None]]
) -> Iterator[MlmsError]:
    """Yield errors of the output that is a classification: its axes, and the names of classes."""
    output = loaded.manifest.classification
    if output is None:
        return
    shape = shapes[output.name]
    classes = _axes_of_classes(output, shape)
    place = loaded.place("outputs", loaded.manifest.outputs.index(output))
    if shape and (len(shape) < 2 or len(classes) > 1):
        found = f"output {output.name!r} is {shape}, not inputs x classes"
        yield MlmsError(f"{place}: {found}; name another output, or write 'type: tensor'")
        return
    labels = loaded.labels_file
    if labels is None or len(classes) != 1 or classes[0] is None:
        return
    path = Path(labels.source)
    if path.is_file() and labels.member is None:
        error = _error_of(partial(read_labels, path, classes[0]))
        if error:
            yield MlmsError(f"{labels.place}: {error}")
