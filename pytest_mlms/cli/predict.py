"""``mlms predict``: predictions of a manifest's model for files, texts and arrays."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.cli.arguments import (
    add_opening,
    add_stacks,
    check_output,
    output_width,
    print_error,
    show_step,
    telling,
)
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import replacing, write_arrays
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.core.text import visible
from pytest_mlms.core.units import format_quantity
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.sources import FORMS, check_source, is_remote, scheme_of, split_source
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.measure.agent.signature import element_type_of
from pytest_mlms.measure.pipeline.tables import parse_numbers
from pytest_mlms.predict.answers import Answer, DetectedObject, RankedLabel
from pytest_mlms.predict.elements import element_of
from pytest_mlms.predict.inputs import Given, Value, needed_columns
from pytest_mlms.predict.model import Model, Prediction, Profile, open_model
from pytest_mlms.predict.plain import plain_prediction
from pytest_mlms.project import download_limits, find_project
from pytest_mlms.provide.artifacts.fetch import fetch
from pytest_mlms.show.report.table import KEEP, format_table

_STDIN = "-"
_MOST_BYTES = 1 << 30  # of standard input
_PART = 1 << 20  # bytes
_DIGEST = "#sha256="
_FIRST = 6  # values of an array


def add_predict(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "predict", help="run a model on a picture, a sound, a text or an array"
    )
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="a manifest")
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="a file (a picture, a sound, .npy, .npz, .txt), a text for a model of texts, numbers, "
        "- for standard input, or an address that ends in #sha256=DIGEST; NAME=INPUT for each "
        "input of a model with several",
    )
    add_stacks(
        parser, "stack that runs the model, as of pytest; may be repeated, to compare", "--stack"
    )
    parser.add_argument(
        "--element",
        type=int,
        action="append",
        default=[],
        metavar="N",
        dest="elements",
        help="an element of the manifest's dataset, from 0, as an input; may be repeated",
    )
    parser.add_argument("--device", metavar="DEVICE", help="device to use, such as cuda:0")
    parser.add_argument("--layers", action="store_true", help="show the time of each layer")
    parser.add_argument("--json", action="store_true", help="print JSON, a line an input and stack")
    parser.add_argument("--save", type=Path, metavar="FILE.npz", help="write all outputs as arrays")
    add_opening(parser)
    parser.set_defaults(run=_predict)


class _Predicted(NamedTuple):
    """The prediction of one stack's model for an input, with the seconds of a call."""

    model: Model
    prediction: Prediction
    latency: float
    profile: Profile | None


def _predict(options: argparse.Namespace) -> int:
    """Print each stack's prediction for each input; return 1 where one of them failed."""
    if options.save:
        if options.save.suffix != ".npz":
            raise MlmsError(f"--save {options.save}: arrays are kept in an .npz file; name one")
        check_output(options.save, "--save")
    stacks: list[str | None] = list(dict.fromkeys(options.stacks)) or [None]
    several = len(stacks) > 1
    predictors = find_predictors(options.predictors)
    loaded = load_manifest(options.manifest, predictors, options.allow_code)
    given = _inputs(options, loaded)
    sides: dict[tuple[int, str], list[_Predicted]] = {}
    arrays: dict[str, Any] = {}
    failures: list[MlmsError] = []
    with contextlib.closing(_answers(options, stacks, given, failures)) as answers:
        for key, found in answers:
            stack = found.model.case.stack.name
            prefix = f"{key[0]}/" * (len(given) > 1) + f"{stack}/" * several
            if options.save:
                arrays.update(_arrays_of(prefix, found.prediction))
            if options.json:
                line = plain_prediction(
                    key[1], found.model, found.prediction, found.latency, found.profile
                )
                print(json.dumps(line), flush=True)
            elif several:
                sides.setdefault(key, []).append(found)
            else:
                _show(key[1], [found])
    for (_, name), of_stacks in sides.items():
        _show(name, of_stacks)
    if options.save and arrays:
        _save(options.save, arrays)
    return 1 if failures else 0


def _answers(
    options: argparse.Namespace,
    stacks: Sequence[str | None],
    given: Sequence[tuple[str, Given]],
    failures: list[MlmsError],
) -> Generator[tuple[tuple[int, str], _Predicted], None, None]:
    """Yield each stack's prediction for each input, whose number and name come with it.

    Stacks are opened one after the other, so that none waits beside another that is timed. What
    fails is told and added to ``failures``, but for the only stack, whose error is raised.
    """
    for stack in stacks:
        with _telling_of(failures, len(stacks) > 1), _opened(options, stack) as model:
            for number, (name, value) in enumerate(given):
                with _telling_of(failures, True):
                    yield (number, name), _ask(model, value, options.layers)


@contextlib.contextmanager
def _telling_of(failures: list[MlmsError], goes_on: bool) -> Iterator[None]:
    try:
        yield
    except MlmsError as error:
        if not goes_on:
            raise
        print_error(error)
        failures.append(error)


def _opened(options: argparse.Namespace, stack: str | None) -> Model:
    return open_model(
        options.manifest,
        stack=stack,
        device=options.device,
        predictors=options.predictors,
        cache=options.cache,
        allow_code=options.allow_code,
        show=show_step,
        waiting=telling,
    )


def _ask(model: Model, value: Given, with_layers: bool) -> _Predicted:
    prediction = model.predict(value)
    latency = model.latency(value)
    return _Predicted(model, prediction, latency, model.profile(value) if with_layers else None)


def _inputs(options: argparse.Namespace, loaded: LoadedManifest) -> Sequence[tuple[str, Given]]:
    """Return each word and each element of the dataset that is an input, by what it is called."""
    given = list(_read_words(options, loaded)) if options.inputs else []
    for number in options.elements:
        given.append((f"element {number}", element_of(loaded, number, options.cache)))
    if not given:
        raise MlmsError("there is no input; name a file or a text, or an --element of the dataset")
    return given


def _read_words(options: argparse.Namespace, loaded: LoadedManifest) -> Iterator[tuple[str, Given]]:
    """Yield each input of the command line, with what messages call it."""
    words: list[str] = options.inputs
    if sum(word.rpartition("=")[2] == _STDIN for word in words) > 1:
        raise MlmsError("'-' is standard input, which can be read once; write it once")
    place = loaded.place("inputs")
    columns = needed_columns(loaded.manifest.inputs)
    if len(columns) < 2:
        name, spec = next(iter(columns.items()), ("", loaded.manifest.inputs[0]))
        for word in words:
            yield word, _value(_unnamed(word, name, spec, place), spec, options.cache, place)
        return
    are_named = any(word.partition("=")[0] in columns for word in words)
    if not are_named and all(word.partition(_DIGEST)[0].endswith(".npz") for word in words):
        for word in words:
            yield word, _value(word, next(iter(columns.values())), options.cache, place)
        return
    for row in _rows(words, list(columns), place):
        values = {}
        for word, (name, spec) in zip(row, columns.items(), strict=True):
            values[name] = _value(word, spec, options.cache, place)
        yield ", ".join(row), values


def _unnamed(word: str, name: str, spec: Input, place: Place) -> str:
    """Return a word without the name of the only input, which may be before it.

    Texts and files may have ``=`` themselves. Raises MlmsError for another name.
    """
    named, equals, rest = word.partition("=")
    if not equals or spec.takes_text or os.path.exists(word):
        return word
    if named == name:
        return rest
    if re.fullmatch(r"[\w.-]+", named):
        raise MlmsError(f"{place}: {word!r} names no input; write {name}=INPUT, or INPUT alone")
    return word


def _rows(words: Sequence[str], names: Sequence[str], place: Place) -> Iterator[tuple[str, ...]]:
    """Return the words of each input of a model with several, in the order of their names.

    The first word of each name belongs to the first input, and so on.
    """
    by_name: dict[str, list[str]] = {name: [] for name in names}
    for word in words:
        name, equals, rest = word.partition("=")
        if not equals or name not in by_name:
            wanted = " ".join(f"{name}=INPUT" for name in names)
            raise MlmsError(f"{place}: {word!r} names no input; write {wanted}")
        by_name[name].append(rest)
    if len({*map(len, by_name.values())}) > 1:
        raise MlmsError(f"{place}: write each of {', '.join(names)} as often as the others")
    return zip(*by_name.values(), strict=True)


def _value(word: str, spec: Input, cache: Path, place: Place) -> Value:
    """Return what a word of the command line stands for, as a cell of a dataset's table does."""
    if word == _STDIN:
        data = bytearray()
        while len(data) <= _MOST_BYTES and (part := sys.stdin.buffer.read(_PART)):
            data += part
        if len(data) > _MOST_BYTES:
            raise MlmsError(f"standard input is larger than {_MOST_BYTES >> 20:,} MiB; cut it")
        return bytes(data)
    address, _, digest = word.partition(_DIGEST)
    is_address = scheme_of(address) in FORMS and is_remote(address)
    if is_address and (digest or not spec.takes_text):
        return _fetched(address, digest, cache, place)
    if spec.takes_text:
        is_named = word.endswith(".txt") and not any(map(str.isspace, word))
        return Path(word) if is_named or os.path.isfile(word) else word
    is_written = spec.type == "tensor" and parse_numbers(word) is not None
    return word if is_written else Path(word)


def _fetched(address: str, digest: str, cache: Path, place: Place) -> Path:
    if not re.fullmatch("[0-9a-fA-F]{64}", digest):
        advice = f"write {address}{_DIGEST}DIGEST, with what sha256sum prints of the file"
        raise MlmsError(f"{place}: {address} has no digest; {advice}")
    try:
        check_source(address)
    except ValueError as error:
        raise MlmsError(f"{place}: {error}") from None
    source, member = split_source(address)
    limits = download_limits(find_project([place.path]))
    return fetch(Artifact(source, digest, place, member), cache, limits=limits)


def _show(name: str, sides: Sequence[_Predicted]) -> None:
    """Print the answers of stacks side by side, with the time of a call."""
    header, columns = [], []
    for side in sides:
        case = side.model.case
        software = f"{case.stack.framework} {side.model.versions.get(case.stack.framework, '')}"
        header.append(f"{case.stack.name} ({software}, {side.model.device})")
        answers = side.prediction.answers.values()
        lines = [line for answer in answers for line in _lines_of(answer)]
        size = f" of {case.batch_size}" if case.batch_size > 1 else ""
        columns.append([f"{format_quantity(side.latency, 's')} a call{size}", *lines])
    print(visible(f"{name}: {sides[0].model.case.loaded.manifest.name}"))
    rows = list(itertools.zip_longest(*columns, fillvalue=""))
    _print_table(header, rows, len(header))
    for side in sides:
        if side.profile is None:
            continue
        for level, reason in side.profile.unseen.items():
            print_error(f"{side.model.case.stack.name}: level {level}: {reason}")
        layers = [
            [
                one.name,
                one.type,
                format_quantity(one.latency_us / 1e6, "s"),
                f"{100 * one.share:.1f} %",
            ]
            for one in side.profile.layers
        ]
        if layers:
            label = f"layer ({side.model.case.stack.name})"
            _print_table([label, "type", "time", "share"], layers, 2)
    sys.stdout.flush()


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    for lines in format_table(header, rows, output_width(), left):
        print("\n".join(lines).replace(KEEP, " "))


def _lines_of(answer: Answer) -> list[str]:
    """Return the lines that show an answer."""
    if isinstance(answer, str):
        return [" ".join(answer.split())]
    if isinstance(answer, np.ndarray):
        shape = " x ".join(map(str, answer.shape))
        first = answer.reshape(-1)[:_FIRST]
        values = [f"{one:.6g}" if answer.dtype.kind in "iuf" else str(one) for one in first]
        more = " …" if answer.size > _FIRST else ""
        kind = f"{element_type_of(answer)} {shape}".rstrip()
        return [f"{kind}: {' '.join(values)}{more}"]
    rows = [_row_of(one) for one in answer]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["nothing was found"] if not rows else []
    for label, *cells in rows:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        line = "  ".join([label.ljust(widths[0]), *aligned]).rstrip()
        lines.append(line.replace(" ", KEEP))
    return lines


def _row_of(one: RankedLabel | DetectedObject) -> list[str]:
    if isinstance(one, DetectedObject):
        left, top, right, bottom = (f"{number:.0f}" for number in one.box)
        return [one.label, f"{one.score:.3f}", f"{left} {top} - {right} {bottom}"]
    if one.score is None:
        return [one.label, ""]
    return [one.label, f"{100 * one.score:.1f} %" if one.is_probability else f"{one.score:.4g}"]


def _arrays_of(prefix: str, prediction: Prediction) -> dict[str, Any]:
    """Return the arrays of answers, and the model's own outputs where an answer is no array."""
    arrays = {**prediction.outputs, **prediction.arrays}
    return {prefix + name: one for name, one in arrays.items()}


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    try:
        with replacing(path) as temporary:
            write_arrays(temporary, arrays)
    except OSError as error:
        advice = "make room, or name another file"
        raise MlmsError(f"--save {path} can't be written: {error.strerror}; {advice}") from None
