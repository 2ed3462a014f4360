"""``mlms describe``: the static cost of the models of manifests, as tables or as JSON."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.cli.arguments import (
    add_opening,
    add_stacks,
    add_top,
    positive,
    print_error,
    show_step,
)
from pytest_mlms.core.errors import MlmsError, StackError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.text import visible
from pytest_mlms.core.units import format_quantity
from pytest_mlms.manifest import LoadedManifest, find_manifests
from pytest_mlms.manifest.schema import Model
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.measure.structure.cost import LayerCost, ModelCost
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from pytest_mlms.measure.structure.source import FrameworkSource, describe_case, is_onnx
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.declared import HERE, choose, stacks_for
from pytest_mlms.provide.stacks.schema import STACK_FILES
from pytest_mlms.show.pages.numbers import count_text
from pytest_mlms.show.report.table import KEEP, format_table

_WIDTH = 80  # columns of output that is not a terminal
_HEADER = ("layer", "type", "output", "parameters", "FLOPs", "weights", "activations")
_TEXT_COLUMNS = 3


def add_describe(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "describe", help="parameters, operations and bytes of models, by layer"
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a manifest, a folder of them, or an ONNX file",
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        default=1,
        metavar="N",
        help="inputs at a time (default: 1)",
    )
    parser.add_argument(
        "--axis",
        action="append",
        type=_axis,
        default=[],
        metavar="NAME=SIZE",
        help="a free axis",
    )
    add_top(parser, "only the N layers with the most operations; JSON has all")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a model")
    add_stacks(
        parser,
        "ask the framework of this stack, instead of reading the manifest's ONNX file; "
        "may be repeated",
    )
    add_opening(parser)
    parser.set_defaults(run=_describe)


def _axis(text: str) -> tuple[str, int]:
    name, equals, size = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE")
    return name, positive(size)


@dataclass(frozen=True)
class _Subject:
    """A model to be described.

    ``path`` is its manifest or ONNX file, ``stack`` what the user chose, if anything. ``describe``
    raises MlmsError.
    """

    path: Path
    stack: str | None
    describe: Callable[[], ModelCost]


def _describe(options: argparse.Namespace) -> int:
    """Print the cost of each model; return 2 where one can't be described."""
    status = 0
    for subject in _subjects(options):
        try:
            cost = subject.describe()
        except MlmsError as error:
            print_error(error)
            status = 2
            continue
        if options.json:
            print(_as_json(subject, options.batch_size, cost))
        else:
            print(_as_text(subject, options.batch_size, cost, options.top))
    return status


def _subjects(options: argparse.Namespace) -> Iterator[_Subject]:
    axes = dict(options.axis)
    for path in options.paths:
        if path.suffix == ".onnx":
            describe = partial(describe_onnx, path, options.batch_size, axes)
            yield _Subject(path, None, describe)
        else:
            yield from _subjects_below(path, options)


def _subjects_below(path: Path, options: argparse.Namespace) -> Iterator[_Subject]:
    """Yield the models of a manifest, or of the manifests in a folder."""
    predictors = find_predictors(options.predictors)
    declared = project_stacks([path])
    chosen = choose(options.stacks, declared, predictors)
    axes = dict(options.axis)
    for manifest in find_manifests([path]):
        if manifest.name in STACK_FILES:
            continue
        try:
            loaded = load_manifest(manifest, predictors)
            cases = _cases(loaded, chosen, declared, options.batch_size)
        except MlmsError as error:  # other manifests may do
            yield _Subject(manifest, None, partial(_fail, error))
            continue
        for case in cases:
            predictor = predictors[case.stack.framework]
            source = FrameworkSource(predictor, options.cache, options.allow_code, show_step)
            stack = case.stack.label if chosen else None
            yield _Subject(manifest, stack, partial(describe_case, case, axes, source))


def _fail(error: MlmsError) -> ModelCost:
    raise error


def _cases(
    loaded: LoadedManifest, chosen: Sequence[Stack], declared: Mapping[str, Stack], batch_size: int
) -> list[Case]:
    """Return the cases to describe: the models of the stacks chosen, else one model."""
    models = loaded.manifest.models
    offered = {model.name for model in models}
    if not chosen:
        model = _preferred(loaded)
        models = [model]
        chosen = [declared.get(model.name, HERE)]
    cases = []
    for model in models:
        for stack in stacks_for(model.name, chosen, offered):
            cases.append(Case("trace", loaded, model, stack, "cpu", batch_size, None))
    if not cases:
        names = ", ".join(stack.name for stack in chosen)
        raise StackError(f"{loaded.place('models')}: no model is for {names}")
    return cases


def _preferred(loaded: LoadedManifest) -> Model:
    """Return the manifest's first model that is ONNX, else its first one."""
    models = loaded.manifest.models
    for model in models:
        files = loaded.model_files(model)
        if is_onnx(files["graph"]):
            return model
    return models[0]


def _as_json(subject: _Subject, batch_size: int, cost: ModelCost) -> str:
    plain = {
        "path": str(subject.path),
        "stack": subject.stack,
        "batch_size": batch_size,
        "parameters": cost.parameters,
        "flops": cost.flops,
        "weight_bytes": cost.weight_bytes,
        "activation_bytes": cost.activation_bytes,
        "unknown": cost.unknown,
    }
    return json.dumps({**plain, **to_plain(cost)})


def _as_text(subject: _Subject, batch_size: int, cost: ModelCost, top: int | None) -> str:
    """Return a title, a table with a row a layer, and notes."""
    title = [str(subject.path), f"batch of {batch_size}"]
    if subject.stack:
        title.insert(1, subject.stack)
    lines = [", ".join(title)]
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    for row in format_table(_HEADER, _rows(cost, top), width, _TEXT_COLUMNS):
        lines += row
    if top is not None and top < len(cost.layers):
        lines.append(f"{top} of {len(cost.layers)} layers, those with the most operations")
    lines += map(visible, _notes(cost))
    lines.append("")
    return "\n".join(lines)


def _rows(cost: ModelCost, top: int | None) -> list[list[str]]:
    layers: Sequence[LayerCost] = cost.layers
    if top is not None:
        layers = sorted(layers, key=lambda layer: layer.flops or 0, reverse=True)[:top]
    rows = [_row(layer) for layer in layers]
    total = [
        "in all",
        "",
        "",
        _scaled(cost.parameters),
        _scaled(cost.flops),
        _bytes(cost.weight_bytes),
        _bytes(cost.activation_bytes),
    ]
    rows.append(total)
    return rows


def _row(layer: LayerCost) -> list[str]:
    return [
        layer.name,
        layer.type,
        _shape(layer),
        _cell(layer.parameters, _scaled),
        _cell(layer.flops, _scaled),
        _cell(layer.weight_bytes, _bytes),
        _cell(layer.output_bytes, _bytes),
    ]


def _shape(layer: LayerCost) -> str:
    """Return the sizes of a layer's output, with an x between them."""
    if layer.shape is None:
        return "?"
    if not layer.shape:
        return "scalar"
    return f"{KEEP}x{KEEP}".join(map(str, layer.shape))


def _cell(count: int | None, show: Callable[[int], str]) -> str:
    if count is None:
        return "?"
    if count == 0:
        return "-"
    return show(count)


def _bytes(size: int) -> str:
    return format_quantity(size, "B").replace(" ", KEEP)


def _scaled(count: int) -> str:
    return count_text(count).replace(" ", KEEP)


def _notes(cost: ModelCost) -> Iterator[str]:
    yield f"operations by {cost.counter}"
    if cost.peak_bytes is not None:
        peak = format_quantity(cost.peak_bytes, "B")
        yield f"at most {peak} of activations at once"
    if cost.unknown:
        types = ", ".join(cost.unknown)
        yield f"the sums leave out layers of unknown cost: {types}"
