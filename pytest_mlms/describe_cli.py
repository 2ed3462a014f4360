"""``mlms describe``: what the models of manifests cost by their structure, as tables or as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.errors import MlmsError
from pytest_mlms.manifest import load
from pytest_mlms.provision.artifacts import default_cache, fetch
from pytest_mlms.report.table import format_table
from pytest_mlms.trace.describe import Described, LayerCost, describe_onnx
from pytest_mlms.units import format_quantity

__all__ = ["add_describe"]

_WIDTH = 100
_SCALE = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")]


def add_describe(commands: Any) -> None:
    """Add the command to the parser's commands."""
    parser = commands.add_parser("describe", help="parameters, operations and bytes by layer, of models as ONNX")
    parser.set_defaults(run=_describe)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a manifest, or an ONNX file")
    parser.add_argument("--batch-size", type=_positive, default=1, metavar="N", help="inputs at a time (default: 1)")
    parser.add_argument("--axis", action="append", type=_axis, default=[], metavar="NAME=SIZE", help="a free axis")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a model")
    parser.add_argument("--mlms-cache", type=Path, metavar="DIR", dest="cache", help="folder for fetched artifacts")


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
    for path in options.paths:
        file = path if path.suffix == ".onnx" else _onnx_of(path, options.cache or default_cache())
        found = describe_onnx(file, options.batch_size, dict(options.axis))
        if options.json:
            print(json.dumps({"path": str(path), **_as_dict(found)}))
        else:
            print("\n".join([f"{path}, batch of {found.batch_size}", *_table(found), *_notes(found), ""]))
    return 0


def _onnx_of(path: Path, cache: Path) -> Path:
    """Return the ONNX file of a manifest, fetched where it isn't here."""
    loaded = load(path)
    for model in loaded.manifest.models:
        graph = loaded.model_files(model)["graph"]
        if Path(graph.member or graph.source).suffix == ".onnx":
            return fetch(graph, cache)
    raise MlmsError(f"{loaded.place('models')}: no model is an ONNX file, which is what can be described; add one")


def _as_dict(found: Described) -> dict[str, Any]:
    sums = ("parameters", "flops", "weight_bytes", "activation_bytes", "unknown")
    return {**{name: getattr(found, name) for name in sums}, **dataclasses.asdict(found)}


def _table(found: Described) -> Iterator[str]:
    """Yield the lines: a row a layer, and their sum."""
    rows = [[layer.name, layer.type, _shape(layer), *_cells(layer)] for layer in found.layers]
    sums = [_scaled(found.parameters), _scaled(found.flops), _bytes(found.weight_bytes), _bytes(found.activation_bytes)]
    rows.append(["in all", "", "", *sums])
    head: Sequence[str] = ["layer", "type", "output", "parameters", "FLOPs", "weights", "activations"]
    for lines in format_table(head, rows, _WIDTH, left=3):
        yield from lines


def _notes(found: Described) -> Iterator[str]:
    if found.peak_bytes is not None:
        yield f"at most {format_quantity(found.peak_bytes, 'B')} of activations at once"
    if found.unknown:
        yield f"sums are without what can't be told: {', '.join(found.unknown)}"


def _shape(layer: LayerCost) -> str:
    return "?" if layer.shape is None else " x ".join(map(str, layer.shape))


def _cells(layer: LayerCost) -> list[str]:
    counts = [_known(count, _scaled) for count in (layer.parameters, layer.flops)]
    return [*counts, *(_known(size, _bytes) for size in (layer.weight_bytes, layer.output_bytes))]


def _bytes(size: int) -> str:
    return format_quantity(size, "B")


def _known(count: int | None, show: Callable[[int], str]) -> str:
    return "?" if count is None else show(count) if count else "-"


def _scaled(count: int) -> str:
    """Return a count with three digits: 1.43 G."""
    scale, unit = next(((scale, unit) for scale, unit in _SCALE if count >= scale), (1, ""))
    return f"{count / scale:.3g} {unit}".rstrip() if unit else str(count)
