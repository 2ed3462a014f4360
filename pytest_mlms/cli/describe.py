"""``mlms describe``: what the models of manifests cost by their structure, as tables or as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pytest_mlms.agent.registry import find_predictors
from pytest_mlms.artifacts.fetch import default_cache
from pytest_mlms.cases import Case
from pytest_mlms.errors import MlmsError, StackError
from pytest_mlms.manifest import LoadedManifest, find_manifests, load
from pytest_mlms.records import Stack
from pytest_mlms.report.table import KEEP, format_table
from pytest_mlms.stacks.declared import HERE, choose, declared_stacks, stacks_for
from pytest_mlms.stacks.schema import STACK_FILES
from pytest_mlms.structure.cost import LayerCost, ModelCost
from pytest_mlms.structure.onnx_graph import describe_onnx
from pytest_mlms.structure.source import FrameworkSource, describe_case, is_onnx
from pytest_mlms.units import format_quantity

__all__ = ["add_describe"]

_WIDTH = 100  # of what isn't written to a terminal
_SCALE = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")]


def add_describe(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser(
        "describe", help="parameters, operations and bytes of models, by layer"
    )
    parser.set_defaults(run=_describe)
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a manifest, a folder of them, or an ONNX file",
    )
    parser.add_argument(
        "--batch-size", type=_positive, default=1, metavar="N", help="inputs at a time (default: 1)"
    )
    parser.add_argument(
        "--axis", action="append", type=_axis, default=[], metavar="NAME=SIZE", help="a free axis"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a line a model")
    which = "ask the framework of this stack, instead of reading the manifest's ONNX file; may be repeated"
    parser.add_argument(
        "--mlms-stack", action="append", default=[], metavar="STACK", dest="stacks", help=which
    )
    more = "folder of more predictors; may be repeated"
    parser.add_argument(
        "--mlms-predictors",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        dest="predictors",
        help=more,
    )
    code = "let the files of models run code"
    parser.add_argument("--mlms-allow-code", action="store_true", dest="allow_code", help=code)
    cache = "folder for fetched artifacts and made stacks"
    parser.add_argument(
        "--mlms-cache", type=Path, metavar="DIR", dest="cache", default=default_cache(), help=cache
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def _axis(text: str) -> tuple[str, int]:
    name, equals, size = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE")
    return name, _positive(size)


def _describe(options: argparse.Namespace) -> int:
    status = 0
    for path, stack, find in _subjects(options):
        try:
            found = find()
        except MlmsError as error:
            print(f"mlms: {error}", file=sys.stderr)
            status = 2
            continue
        if options.json:
            facts = {"path": str(path), "stack": stack, "batch_size": options.batch_size}
            print(json.dumps({**facts, **_as_dict(found)}))
        else:
            title = ", ".join(filter(None, [str(path), stack, f"batch of {options.batch_size}"]))
            print("\n".join([title, *_table(found), *_notes(found), ""]))
    return status


def _subjects(
    options: argparse.Namespace,
) -> Iterator[tuple[Path, str | None, Callable[[], ModelCost]]]:
    """Yield what is to be described.

    Its file, the stack where one was asked for, and how to find out.
    """
    axes, predictors = dict(options.axis), find_predictors(options.predictors)
    for path in options.paths:
        if path.suffix == ".onnx":
            yield path, None, partial(describe_onnx, path, options.batch_size, axes)
            continue
        declared = declared_stacks(Path.cwd(), [path.absolute()])
        chosen = choose(options.stacks, declared, predictors)
        for manifest in find_manifests([path]):
            if manifest.name in STACK_FILES:
                continue
            try:
                cases = _cases(load(manifest, predictors), chosen, declared, options.batch_size)
            except MlmsError as error:  # others may do
                yield manifest, None, partial(_fail, error)
                continue
            for case in cases:
                agent = FrameworkSource(
                    predictors[case.stack.framework], options.cache, options.allow_code, _show
                )
                stack = case.stack.label if chosen else None
                yield manifest, stack, partial(describe_case, case, axes, agent)


def _fail(error: MlmsError) -> ModelCost:
    raise error


def _cases(
    loaded: LoadedManifest, chosen: Sequence[Stack], declared: Mapping[str, Stack], batch_size: int
) -> list[Case]:
    """Return the models to describe.

    Those of the stacks chosen, else the first that is ONNX, else the first.
    """
    models = loaded.manifest.models
    offered = {model.name for model in models}
    if not chosen:
        model = next(
            (model for model in models if is_onnx(loaded.model_files(model)["graph"])), models[0]
        )
        models, chosen = [model], [declared.get(model.name, HERE)]
    found = [
        Case("trace", loaded, model, stack, "cpu", batch_size, None)
        for model in models
        for stack in stacks_for(model.name, chosen, offered)
    ]
    if not found:
        raise StackError(
            f"{loaded.place('models')}: no model is for {', '.join(stack.name for stack in chosen)}"
        )
    return found


def _show(text: str) -> None:
    if text:
        print(text, file=sys.stderr)


def _as_dict(found: ModelCost) -> dict[str, Any]:
    sums = ("parameters", "flops", "weight_bytes", "activation_bytes", "unknown")
    return {**{name: getattr(found, name) for name in sums}, **dataclasses.asdict(found)}


def _table(found: ModelCost) -> Iterator[str]:
    """Yield the lines: a row a layer, and their sum."""
    rows = [[layer.name, layer.type, _shape(layer), *_cells(layer)] for layer in found.layers]
    sums = [
        _scaled(found.parameters),
        _scaled(found.flops),
        _bytes(found.weight_bytes),
        _bytes(found.activation_bytes),
    ]
    rows.append(["in all", "", "", *sums])
    head: Sequence[str] = [
        "layer",
        "type",
        "output",
        "parameters",
        "FLOPs",
        "weights",
        "activations",
    ]
    for lines in format_table(head, rows, shutil.get_terminal_size((_WIDTH, 0)).columns, left=3):
        yield from lines


def _notes(found: ModelCost) -> Iterator[str]:
    yield f"operations by {found.counter}"
    if found.peak_bytes is not None:
        yield f"at most {format_quantity(found.peak_bytes, 'B')} of activations at once"
    if found.unknown:
        yield f"sums are without what can't be told: {', '.join(found.unknown)}"


def _shape(layer: LayerCost) -> str:
    return "?" if layer.shape is None else f"{KEEP}x{KEEP}".join(map(str, layer.shape)) or "scalar"


def _cells(layer: LayerCost) -> list[str]:
    counts = [_known(count, _scaled) for count in (layer.parameters, layer.flops)]
    return [*counts, *(_known(size, _bytes) for size in (layer.weight_bytes, layer.output_bytes))]


def _bytes(size: int) -> str:
    return format_quantity(size, "B").replace(" ", KEEP)


def _known(count: int | None, show: Callable[[int], str]) -> str:
    return "?" if count is None else show(count) if count else "-"


def _scaled(count: int) -> str:
    """Return a count with three digits: 1.43 G."""
    scale, unit = next(((scale, unit) for scale, unit in _SCALE if count >= scale), (1, ""))
    return f"{count / scale:.3g}{KEEP}{unit}" if unit else str(count)
