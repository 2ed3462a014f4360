"""``mlms compare``: from a model's file to a verdict on two stacks, in one command."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.measuring import measurable
from pytest_mlms.author.draft.model_files import ModelFiles, openers_of, recognise_models
from pytest_mlms.author.draft.opening import DraftRequest, stacks_of
from pytest_mlms.cli.arguments import (
    add_columns_and_labels,
    add_opening,
    add_results,
    check_output,
    print_error,
    say,
    show_step,
)
from pytest_mlms.cli.shapes import add_shapes, shapes_of
from pytest_mlms.core.child_session import run_to_end
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.records import Stack
from pytest_mlms.core.starts import without_own_settings
from pytest_mlms.core.text import file_stem
from pytest_mlms.keep.results.recorded_manifest import COMPARED
from pytest_mlms.measure.agent.registry import find_predictors, is_ours
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.declared import choose
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.provide.stacks.together import make_together


def add_compare(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare", help="judge a model's file on two stacks: an upgrade without a manifest"
    )
    parser.add_argument("model", metavar="MODEL", help="a model's file, or FRAMEWORK=PATH")
    for side, what in (("old", "baseline"), ("new", "candidate")):
        parser.add_argument(
            f"--{side}",
            required=True,
            metavar="STACK",
            help=f"the {what}: a requirement such as onnxruntime==1.30.0, or a stack's name",
        )
    parser.add_argument(
        "--data", type=Path, metavar="PATH", help="labelled inputs, as mlms init takes them"
    )
    add_columns_and_labels(parser)
    add_shapes(parser)
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="where to leave the manifest (FILE.yaml)"
    )
    parser.add_argument("--force", action="store_true", help="replace a manifest that is there")
    parser.add_argument(
        "--pytest",
        action="append",
        default=[],
        metavar="OPTION",
        dest="pytest_options",
        help="further option of pytest, as in --pytest=--mlms-budget=60; may be repeated",
    )
    add_opening(parser)
    add_results(parser, "folder for the results, and for the manifest without --keep")
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> int:
    """Draft a manifest and run its upgrade; return pytest's status. Raises MlmsError."""
    predictors = find_predictors(options.predictors)
    declared = project_stacks()
    old = _one(options.old, declared, predictors, "--old")
    new = _one(options.new, declared, predictors, "--new")
    if old == new:
        raise MlmsError(f"--old and --new are both {old.name}; name two stacks or releases")
    models = _models(options.model, (old, new), predictors)
    if len(models) > 1:
        _check_frameworks((old, new), models)
    target = _target(options, models[0])
    make_together((old, new), options.cache, show_step)
    for stack in (old, new):
        _make(stack, options.cache)
    request = DraftRequest(
        models=models,
        stacks=stacks_of(models, [old, new]),
        target=target,
        predictors=predictors,
        cache=options.cache,
        say=say,
        show=show_step,
        data=None if options.data is None else recognise_data(options.data),
        labels=options.labels,
        shapes=shapes_of(options),
        target_columns=options.target,
        without_columns=options.without,
        allow_code=options.allow_code,
        replaces=options.force or options.keep is None,
    )
    draft = draft_manifest(request)
    if len(models) > 1:
        draft = measurable(draft)
    try:
        write_atomically(target, draft.text())
    except OSError as error:
        raise MlmsError(f"{target} can't be written: {error.strerror}; name --keep FILE") from error
    say(f"wrote {target}")
    try:
        return run_to_end(_arguments(target, options), without_own_settings())
    except KeyboardInterrupt:
        print_error(f"{target} is kept, and in {options.results} what was measured")
        raise


def _one(
    value: str, declared: Mapping[str, Stack], predictors: Mapping[str, Path], option: str
) -> Stack:
    stacks = choose([value], declared, predictors, option)
    if len(stacks) != 1:
        raise MlmsError(f"{option} {value} means {len(stacks)} stacks; name one of them")
    return stacks[0]


def _check_frameworks(stacks: Sequence[Stack], models: Sequence[ModelFiles]) -> None:
    """Raise MlmsError where two frameworks are compared and a stack is for any."""
    for stack in stacks:
        if not stack.framework:
            names = " and ".join(model.framework for model in models)
            entry = f"own: {{framework: {models[0].framework}, interpreter: current}}"
            raise MlmsError(
                f"{stack.name} may run {names}; declare which one in stacks.yaml, as in "
                f"'{entry}', and name that stack"
            )


def _make(stack: Stack, cache: Path) -> None:
    """Make the environment of a stack; the error has the last reason of its installer, a line."""
    try:
        prepare(stack, cache, show=show_step)
    except MlmsError as error:
        problem, *lines = str(error).splitlines()
        reasons = [line.partition("ERROR: ")[2] for line in lines if "ERROR: " in line]
        raise MlmsError(": ".join([problem, *(reasons or lines)[-1:]])) from None


def _models(
    named: str, stacks: Sequence[Stack], predictors: Mapping[str, Path]
) -> list[ModelFiles]:
    """Return the model's file for each framework of the stacks.

    Raises MlmsError where its name tells that one can't open it: making a stack takes minutes.
    """
    (model,) = recognise_models([named], predictors)
    wanted = dict.fromkeys(stack.framework or model.framework for stack in stacks)
    able = openers_of(model)
    for name in wanted:
        if able and name not in able and is_ours(predictors[name]):
            advice = f"name stacks of {' or '.join(able)}"
            raise MlmsError(f"{model.graph}: {name} can't open such a file; {advice}")
    if [*wanted] == [model.framework]:
        return [model]
    return recognise_models([f"{name}={model.graph}" for name in wanted], predictors)


def _target(options: argparse.Namespace, model: ModelFiles) -> Path:
    """Return the path of the manifest; its folder is made where the user didn't name it."""
    name = f"{file_stem(model.graph.name)}.yaml"
    path: Path = options.keep or options.results / COMPARED / name
    if path.suffix not in (".yaml", ".yml"):
        raise MlmsError(f"--keep {path}: the name of a manifest ends in .yaml")
    if options.keep and path.exists() and not options.force:
        raise MlmsError(f"{path} is there already; --force replaces it")
    if options.keep:
        check_output(path, "--keep")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MlmsError(f"{path.parent} can't be made: {error.strerror}") from error
    return path


def _arguments(target: Path, options: argparse.Namespace) -> list[str]:
    """Return pytest's arguments; settings of a project's own tests are left out."""
    command = [str(target), f"-c{os.devnull}"]
    command += [f"--rootdir={Path.cwd()}", "-pno:cacheprovider", "-Wignore:no limit judges"]
    command += [f"--mlms-stack={options.new}", f"--mlms-against={options.old}"]
    command.append(f"--mlms-results={options.results}")
    if options.cache != default_cache():
        command.append(f"--mlms-cache={options.cache}")
    command += [f"--mlms-predictors={folder}" for folder in options.predictors]
    command += ["--mlms-allow-code"] if options.allow_code else []
    return [*command, *options.pytest_options]
