"""Text of a small ONNX model in a bundle: its inputs and its nodes with all attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pytest_mlms.core.text import shortened
from pytest_mlms.explain.repro.bundle import Bundle

_MOST_NODES = 8
_LONGEST = 400  # characters of a line


class SmallModel(NamedTuple):
    """The lines of a model; none for a large one. ``operator`` is that of a single node."""

    lines: tuple[str, ...] = ()
    operator: str = ""


def small_model(bundle: Bundle) -> SmallModel:
    """Return the text of a bundle's model; none of one that is no ONNX file."""
    path = bundle.files["graph"]
    if path.suffix != ".onnx":
        return SmallModel()
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    operator = nodes[0].op_type if len(nodes) == 1 else ""
    if len(nodes) > _MOST_NODES:
        return SmallModel()
    lines = [shortened(line, _LONGEST) for line in _lines(model, bundle)]
    return SmallModel(tuple(lines), operator)


def _lines(model: Any, bundle: Bundle) -> Iterator[str]:
    from onnx import helper, printer

    for entry in model.opset_import:
        yield f"opset {entry.version} of {entry.domain or 'ai.onnx'}"
    for name, array in bundle.inputs.items():
        yield f"input {name}: {array.dtype} {list(array.shape)}"
    for tensor in model.graph.initializer:
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        yield f"weight {tensor.name}: {kind} {list(tensor.dims)}"
    for node in model.graph.node:
        yield " ".join(printer.to_text(node).split())
