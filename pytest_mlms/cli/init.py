"""``mlms init``: from the files of a model, and data, to a manifest that runs at once."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.author.doctor.examination import Examination
from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.measuring import (
    measurable,
    measure_twice,
    with_best_pixels,
    with_limits,
)
from pytest_mlms.author.draft.model_files import ModelFiles, recognise_models
from pytest_mlms.author.draft.opening import DraftRequest, stacks_of
from pytest_mlms.author.draft.parts import Draft
from pytest_mlms.cli.arguments import (
    add_columns_and_labels,
    add_opening,
    add_stacks,
    check_output,
    positive,
    say,
    show_step,
)
from pytest_mlms.cli.shapes import add_shapes, shapes_of
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import replacing
from pytest_mlms.core.text import file_stem
from pytest_mlms.manifest import load, yaml12
from pytest_mlms.manifest.load import shown
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.declared import choose

_SUFFIXES = (".yaml", ".yml")
_TRIED = range(40, 201)
"""The least and the most inputs on which ranges of pixels are compared."""
_TRIED_SECONDS = 1.5  # for the inputs of one range


def add_init(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "init", help="write a manifest for a model's file, with limits measured here"
    )
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a model's file or SavedModel folder, or FRAMEWORK=PATH; several are one network in "
        "several formats, or variants of it such as fp32 and int8",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="labelled inputs: a folder with a folder of pictures or sounds for each class, a "
        "folder or an archive with a labels.csv, an .npz, a table (.csv, .tsv), or a COCO file",
    )
    add_columns_and_labels(parser)
    parser.add_argument("--task", metavar="NAME", help="such as image-classification")
    parser.add_argument(
        "--inputs",
        type=positive,
        default=1000,
        metavar="N",
        help="pictures of a folder, or rows of a table, to take at most (default: 1000)",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=_option,
        metavar="NAME=VALUE",
        dest="options",
        help="option of the framework's predictor; FRAMEWORK:NAME=VALUE for one of several",
    )
    add_shapes(parser)
    parser.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="threads of the CPU, for steadier times (default: the framework's own choice)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="the manifest (default: MODEL.yaml, here)"
    )
    parser.add_argument("--force", action="store_true", help="replace a manifest that is there")
    add_stacks(parser, "stack that runs the model, as of pytest; may be repeated")
    add_opening(parser)
    parser.set_defaults(run=_init)


def _option(text: str) -> tuple[str, str, Any]:
    """Return framework ("" for any), name and value of an option."""
    name, equals, value = text.partition("=")
    framework, colon, own = name.partition(":")
    if not (equals and name and (own or not colon)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    document = yaml12.parse(value)  # what is no number, true or false is a text
    is_scalar = isinstance(document.value, (str, int, float)) and not document.errors
    typed = document.value if is_scalar else value
    return (framework, own, typed) if colon else ("", name, typed)


def _init(options: argparse.Namespace) -> int:
    """Draft a manifest, measure its limits, and write it."""
    predictors = find_predictors(options.predictors)
    models = recognise_models(options.models, predictors)
    target = _target(options, models)
    request = DraftRequest(
        models=models,
        stacks=stacks_of(models, choose(options.stacks, project_stacks(), predictors)),
        target=target,
        predictors=predictors,
        cache=options.cache,
        say=say,
        show=show_step,
        data=None if options.data is None else recognise_data(options.data),
        most_inputs=options.inputs,
        threads=options.threads,
        labels=options.labels,
        task=options.task,
        shapes=shapes_of(options),
        target_columns=options.target,
        without_columns=options.without,
        options=_options(options, models),
        allow_code=options.allow_code,
        replaces=options.force,
    )
    try:
        _write(request, options)
    except BaseException:
        for path in request.made:
            path.unlink(missing_ok=True)
        raise
    say(f"wrote {target}")
    print(_command(target, options, models))
    return 0


def _write(request: DraftRequest, options: argparse.Namespace) -> None:
    """Draft and measure a manifest, and write it whole or not at all. Raises MlmsError."""
    target = request.target
    try:
        with replacing(target) as temporary:
            temporary.touch()  # before any work, to see whether it can be
            draft = draft_manifest(request)
            try:
                draft = _measured(draft, temporary, options, request)
            except MlmsError as error:
                raise MlmsError(_without_draft(str(error), temporary)) from error
            temporary.write_text(draft.text(), encoding="utf-8")
    except OSError as error:
        problem = f"{target} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; make room, or name another place with --output") from error


def _without_draft(text: str, draft: Path) -> str:
    """Return the text of an error without the name of the draft's file, which will be removed.

    Its lines are quoted instead, and commands that would run it are left out.
    """
    lines = draft.read_text(encoding="utf-8").splitlines()
    text = re.sub(rf"(?<!\S)\S*{re.escape(draft.name)}", "the draft", text)
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("reproduce: ")]

    def quoted(found: re.Match[str]) -> str:
        number = int(found[1])
        line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        return f"line {number} of the draft ({line})"

    return re.sub(r"the draft:(\d+)", quoted, "\n".join(kept))


def _measured(
    draft: Draft, temporary: Path, options: argparse.Namespace, request: DraftRequest
) -> Draft:
    """Return the draft with limits, for which it is run from a temporary file beside its place."""
    temporary.write_text(draft.text(), encoding="utf-8")
    loaded = load(temporary, request.predictors)
    model = loaded.manifest.models[0]
    affordable = int(_TRIED_SECONDS / max(draft.seconds, 1e-6))
    examination = Examination(
        loaded=loaded,
        model=model,
        stack=request.stacks[model.name],
        inputs=min(max(affordable, _TRIED.start), _TRIED.stop - 1),
        predictors=request.predictors,
        cache=request.cache,
        allow_code=request.allow_code,
        show=show_step,
        note=say,
    )
    draft = with_best_pixels(draft, examination, say)
    temporary.write_text(measurable(draft).text(), encoding="utf-8")
    say("measuring it on this machine, twice …")
    further = [f"--mlms-cache={options.cache}"]
    try:
        runs = measure_twice(temporary, [*_pytest_options(options, len(draft.models)), *further])
    except MlmsError as error:
        if draft.dataset is not None:
            raise
        arrays = ", ".join(f"{part.name}=…" for part in draft.inputs if part.from_output is None)
        advice = f"If random inputs are what is wrong, give others: --data FILE.npz, with {arrays}"
        raise MlmsError(f"{error}\n{advice}") from error
    draft = with_limits(draft, runs)
    if draft.doubt:
        say(f"mlms: {draft.doubt}")
    return draft


def _target(options: argparse.Namespace, models: Sequence[ModelFiles]) -> Path:
    """Return the path of the manifest; raises MlmsError where it can't be written there."""
    path = options.output or Path(f"{file_stem(models[0].graph.name)}.yaml")
    if path.suffix not in _SUFFIXES:
        raise MlmsError(f"--output {path}: the name of a manifest ends in .yaml")
    check_output(path, "--output")
    if path.exists() and not options.force:
        advice = "--force replaces it, --output FILE writes another one"
        raise MlmsError(f"{path} is there already; {advice}")
    return Path(path)


def _options(
    options: argparse.Namespace, models: Sequence[ModelFiles]
) -> dict[str, dict[str, Any]]:
    """Return the options of each framework."""
    found: dict[str, dict[str, Any]] = {model.framework: {} for model in models}
    for framework, name, value in options.options:
        if framework and framework not in found:
            raise MlmsError(f"--option {framework}:{name}: no model is for {framework}")
        for known in [framework] if framework else list(found):
            found[known][name] = value
    return found


def _pytest_options(options: argparse.Namespace, models: int) -> list[str]:
    """Return the options with which pytest runs the draft."""
    words = []
    for stack in options.stacks:
        words += ["--mlms-stack", stack]
    if models > 1 and "here" not in options.stacks:
        words += ["--mlms-stack", "here"]
    for folder in options.predictors:
        words += ["--mlms-predictors", str(folder)]
    if options.cache != default_cache():
        words += ["--mlms-cache", str(options.cache)]
    if options.allow_code:
        words.append("--mlms-allow-code")
    return words


def _command(target: Path, options: argparse.Namespace, models: Sequence[ModelFiles]) -> str:
    words = ["pytest", str(shown(target)), *_pytest_options(options, len(models))]
    return shlex.join(words)
