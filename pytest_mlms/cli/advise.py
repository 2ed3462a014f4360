"""``mlms advise``: the best configuration for an objective under limits, found by measuring."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import (
    add_opening,
    add_results,
    add_stacks,
    of_project,
    output_width,
    positive,
    say,
    seconds_above_0,
    show_step,
    telling,
)
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.units import parse_share

if TYPE_CHECKING:
    from pytest_mlms.core.quantities import Quantity
    from pytest_mlms.decide.advice.candidates import Candidate, Choices
    from pytest_mlms.decide.advice.fragment import Fragment
    from pytest_mlms.decide.advice.measuring import Means
    from pytest_mlms.decide.advice.record import Keep, Measured, Replayed
    from pytest_mlms.decide.advice.run import Answer, Question
    from pytest_mlms.keep.history.fleet import Remembered
    from pytest_mlms.manifest.load import LoadedManifest

_INTERRUPTED = 130  # the exit status
OF_MEASURING = ("replay", "budget", "duration", "seed", "no_history")
_FLAGS = {"limits": "subject-to", "options": "option", "seed": "mlms-seed"}
"""Options whose flags are called otherwise."""


def add_advise(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "advise", help="find the best configuration of models for an objective under limits"
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="MANIFEST", help="a manifest")
    parser.add_argument("--objective", metavar="TEXT", help="as in 'max throughput'")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="rank the models of these manifests, by default the project's, by their answers for "
        "these labelled inputs, in one of the forms of 'mlms init'",
    )
    parser.add_argument(
        "--task", metavar="TASK", help="task of --data, where its labels may be of several"
    )
    parser.add_argument(
        "--subject-to",
        action="extend",
        default=[],
        type=_limits,
        metavar="LIMITS",
        dest="limits",
        help="as in 'latency_p99 <= 15 ms, top1 >= 75 %%, peak_memory <= 2 GiB'; may be repeated",
    )
    parser.add_argument(
        "--hosts",
        type=Path,
        metavar="FILE",
        help="compare the hosts of this file by the history, and measure nothing; 'hosts: {gpu1: "
        "{price: 2.1 USD/h}}' is for --objective 'min price'",
    )
    _add_choices(parser)
    _add_effort(parser)
    add_opening(parser)
    add_results(parser, "folder for the record of each process")
    parser.set_defaults(run=_advise, usual=parser.get_default)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    add_stacks(parser, "stack that runs models, as of pytest; may be repeated", "--stack")
    for name, text in (("batch-sizes", "inputs of a call"), ("threads", "CPU threads")):
        parser.add_argument(f"--{name}", type=_numbers, default=[], metavar="N,N…", help=text)
    parser.add_argument(
        "--option",
        action="append",
        type=_option,
        default=[],
        metavar="NAME=VALUE,VALUE…",
        dest="options",
        help="an option of the predictor, with the values to try; may be repeated",
    )


def _add_effort(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budget",
        type=_budget,
        default=600.0,
        metavar="TIME",
        help="time of all processes, as in 10min (default)",
    )
    parser.add_argument(
        "--duration",
        type=seconds_above_0,
        default=0.5,
        metavar="SECONDS",
        help="time that a process is timed for (default: 0.5)",
    )
    parser.add_argument(
        "--tolerance",
        type=_share,
        default=0.05,
        metavar="SHARE",
        help="what is better by less is as good (default: 5 %%)",
    )
    parser.add_argument(
        "--mlms-seed",
        type=positive,
        metavar="N",
        dest="seed",
        help="draw timed inputs by this (default: a new one each time)",
    )
    parser.add_argument(
        "--history",
        "--mlms-history",
        default=of_project(parser, "history", None),
        metavar="HISTORY",
        help="history that sets hopeless candidates aside (default: pytest's, if it has one)",
    )
    parser.add_argument(
        "--no-history", action="store_true", help="measure what the history sets aside, too"
    )
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="judge the processes of this record, by the command that made it; measure nothing",
    )


def _typed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _limits(text: str) -> Any:
    from pytest_mlms.decide.advice.parsing import parse_limits

    return _typed(parse_limits, text)


def _budget(text: str) -> Any:
    from pytest_mlms.decide.advice.parsing import parse_budget

    return _typed(parse_budget, text)


def _share(text: str) -> float:
    share: float = _typed(parse_share, text)
    if not share:
        raise argparse.ArgumentTypeError("what differs by nothing can't be told; write 1 % or more")
    return share


def _numbers(text: str) -> list[int]:
    return [positive(word.strip()) for word in text.split(",")]


def _option(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE,VALUE…")
    return name, [_scalar(value) for value in values.split(",")]


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _scalar(text: str) -> Any:
    with contextlib.suppress(ValueError):
        value = json.loads(text, parse_constant=_no_number)
        if isinstance(value, (int, float, bool)):
            return value
    return text


def _advise(options: argparse.Namespace) -> int:
    """Print the advice; return 1 where nothing is shown to be within the limits."""
    if options.data:
        from pytest_mlms.cli.advise_data import advise_by_data

        return advise_by_data(options)
    _check_asked(options)
    from pytest_mlms.decide.advice.candidates import check_limits
    from pytest_mlms.decide.advice.hosts import ALL_RUNS
    from pytest_mlms.decide.advice.parsing import PRICE, parse_objective
    from pytest_mlms.decide.advice.run import Question, find_best

    objective = objective_of(options, parse_objective).name
    candidates: Sequence[Candidate] = _candidates(options)
    measured = "throughput" if objective == PRICE.name else objective
    check_limits(candidates, measured, options.limits)
    question = Question(objective, options.limits, options.tolerance, options.budget)
    source: Remembered | Measured | Replayed
    if options.hosts:
        question = replace(question, budget=math.inf, looks=ALL_RUNS)
        candidates, source = _on_hosts(options, candidates, question)
    fragments = _fragments(options, candidates)
    _tell(candidates, question)
    set_aside: dict[int, str] = {}
    with contextlib.ExitStack() as stack:
        if not options.hosts:
            set_aside = _set_aside(options, candidates, question)
            source = stack.enter_context(_source(options, candidates, question, set_aside))
        answer = find_best(candidates, question, source, set_aside)
        doubts = "" if answer.best is None else source.doubts(answer.best)
    _print_answer(candidates, answer, doubts, fragments)
    if answer.advice.ended == "interrupted":
        return _INTERRUPTED
    return 0 if answer.best is not None else 1


def _print_answer(
    candidates: Sequence[Candidate], answer: Answer, doubts: str, fragments: Sequence[Fragment]
) -> None:
    from pytest_mlms.show.report.advice import table_of, verdict_of

    for line in table_of(candidates, answer, output_width()):
        print(line)
    print()
    for line in verdict_of(candidates, answer):
        print(line)
    if answer.best is None:
        return
    chosen = candidates[answer.best]
    if doubts:
        print(f"of what it was judged by: {doubts}")
    print()
    if chosen.place:
        print(f"# on {chosen.place}")
    print(fragments[answer.best].text(chosen.case))


def _check_asked(options: argparse.Namespace) -> None:
    """Raise MlmsError where no manifest or no objective is named."""
    if not options.paths:
        raise MlmsError("there is nothing to compare; name manifests, or --data FOLDER")
    if options.objective is None:
        raise MlmsError("what is best isn't said; write --objective, as in 'max throughput'")
    if options.task:
        raise MlmsError("--task is that of --data; leave it out")
    if options.hosts and not options.history:
        raise MlmsError("--hosts asks a history, and there is none; name one by --history")
    if options.hosts:
        refuse(options, "--hosts asks the history, and measures nothing", OF_MEASURING)
    if not options.hosts and options.objective.split()[1:] == ["price"]:
        raise MlmsError("--objective: prices are those of hosts; name their file by --hosts")


def refuse(options: argparse.Namespace, purpose: str, names: Sequence[str]) -> None:
    """Raise MlmsError where one of these options was given, which would do nothing."""
    for name in names:
        if getattr(options, name) != options.usual(name):
            flag = _FLAGS.get(name, name.replace("_", "-"))
            raise MlmsError(f"{purpose}, and --{flag} is for another question; leave it out")


def objective_of(options: argparse.Namespace, parse: Callable[[str], Quantity]) -> Quantity:
    """Return the quantity of the objective; raises MlmsError for a text that is none."""
    try:
        return parse(options.objective)
    except ValueError as error:
        raise MlmsError(f"--objective: {error}") from None


def _candidates(options: argparse.Namespace) -> list[Candidate]:
    from pytest_mlms.author.loading import load_manifest
    from pytest_mlms.decide.advice.candidates import Choices
    from pytest_mlms.measure.agent.registry import find_predictors

    predictors = find_predictors(options.predictors)
    manifests = [load_manifest(path, predictors, options.allow_code) for path in options.paths]
    varied: dict[str, list[Any]] = {}
    for name, values in options.options:
        varied.setdefault(name, []).extend(values)
    choices = Choices(options.batch_sizes, options.threads, varied, gpus=bool(options.hosts))
    return candidates_of(manifests, options, choices)


def candidates_of(
    manifests: Sequence[LoadedManifest], options: argparse.Namespace, choices: Choices
) -> list[Candidate]:
    """Return the candidates of manifests on the stacks that the command names."""
    from pytest_mlms.decide.advice.candidates import find_candidates
    from pytest_mlms.measure.agent.registry import find_predictors
    from pytest_mlms.project import project_stacks
    from pytest_mlms.provide.stacks.declared import choose, stacks_for

    predictors = find_predictors(options.predictors)
    paths = [loaded.path for loaded in manifests]
    chosen = choose(options.stacks, project_stacks(paths), predictors, "--stack")
    return find_candidates(
        manifests,
        lambda framework, offered: stacks_for(framework, chosen=chosen, offered=offered),
        choices,
        predictors,
    )


def _fragments(options: argparse.Namespace, candidates: Sequence[Candidate]) -> list[Fragment]:
    """Return what is pasted for each candidate; raises ManifestError where that can't be.

    It is made before anything is measured, as people edit manifests while they wait.
    """
    from pytest_mlms.decide.advice.fragment import fragment_of
    from pytest_mlms.measure.agent.registry import find_predictors

    predictors = find_predictors(options.predictors)
    found = []
    checked = set()
    for candidate in candidates:
        case = candidate.case
        found.append(fragment_of(candidate, options.limits))
        if (case.loaded.path, case.batch_size) not in checked:
            checked.add((case.loaded.path, case.batch_size))
            found[-1].check(case, predictors)
    return found


def _tell(candidates: Sequence[Candidate], question: Question) -> None:
    """Print what is compared, what is not judged, and what is easily overlooked."""
    from pytest_mlms.core.quantities import QUANTITIES

    scenario = candidates[0].scenario
    spent = f"{question.budget:g} s of processes at most"
    how = spent if math.isfinite(question.budget) else "by the history"
    say(f"{question.objective} of {len(candidates)} candidates in {scenario}, {how}")
    judged = {limit for each in candidates for limit in each.own_limits}
    for limit in sorted(judged, key=lambda limit: str(limit.place)):
        say(f"{limit.place}: the manifest's limit on {limit.quantity} holds, too")
    every = {limit for each in candidates for limit in each.case.loaded.all_limits}
    for limit in sorted(every - judged, key=lambda limit: str(limit.place)):
        say(f"{limit.place}: {limit.quantity} isn't judged here; run pytest for it")
    for loaded in {each.case.loaded.path: each.case.loaded for each in candidates}.values():
        for number, label in enumerate(loaded.manifest.evaluate.scenario_labels):
            if label != scenario:
                place = loaded.place("evaluate", "scenarios", number)
                say(f"{place}: {label} isn't timed here, but has the answer's settings; run pytest")
    limits = [limit for each in candidates for limit in question.limits_of(each)]
    several = len({each.case.model.label + str(each.case.loaded.path) for each in candidates}) > 1
    if several and not any(QUANTITIES[limit.quantity].kind == "accuracy" for limit in limits):
        say("no limit is on answers: the best may be a model that is often wrong")


def _set_aside(
    options: argparse.Namespace, candidates: Sequence[Candidate], question: Question
) -> dict[int, str]:
    """Return the candidates that aren't worth measuring again, by a history or a record."""
    from pytest_mlms.decide.advice.record import recorded_question

    if options.replay:
        asked = recorded_question(options.replay)
        aside = asked.set_aside if asked else {}
        labels = [candidate.label for candidate in candidates]
        return {number: aside[label] for number, label in enumerate(labels) if label in aside}
    if options.no_history or not options.history:
        return {}
    return _hopeless(options.history, candidates, question)


def _hopeless(address: str, candidates: Sequence[Candidate], question: Question) -> dict[int, str]:
    from pytest_mlms.decide.advice.known import hopeless
    from pytest_mlms.decide.advice.measuring import is_timed
    from pytest_mlms.keep.history.errors import HistoryError
    from pytest_mlms.keep.history.known import known_of
    from pytest_mlms.keep.history.store import open_to_read
    from pytest_mlms.provide.host.machine import machine_state

    limits = [list(filter(is_timed, question.limits_of(each))) for each in candidates]
    machine = machine_state()
    known = []
    try:
        with open_to_read(address).connect() as connection:
            for candidate, own in zip(candidates, limits, strict=True):
                names = {question.objective, *(limit.quantity for limit in own)}
                known.append(known_of(connection, candidate.case, machine, names))
    except HistoryError as error:
        say(f"nothing is known beforehand: {error}")
        return {}
    answering = []
    for candidate, timed in zip(candidates, limits, strict=True):
        is_limited = len(timed) < len(question.limits_of(candidate))
        answering.append(candidate.answering if is_limited else None)
    found = hopeless(known, question.objective, limits, answering)
    say(
        f"the history knows {sum(map(bool, known))} of {len(known)} candidates on this class of "
        f"machine; {len(found)} of them are set aside"
    )
    return found


def _on_hosts(
    options: argparse.Namespace, candidates: Sequence[Candidate], question: Question
) -> tuple[Sequence[Candidate], Remembered]:
    """Return candidates on hosts, and what the history knows of them."""
    from pytest_mlms.decide.advice.hosts import read_hosts
    from pytest_mlms.decide.advice.parsing import PRICE
    from pytest_mlms.keep.history.fleet import Remembered, on_hosts, without_dearer
    from pytest_mlms.keep.history.store import open_to_read

    hosts = read_hosts(options.hosts)
    is_price = question.objective == PRICE.name
    source = "throughput" if is_price else question.objective

    def quantities_of(candidate: Candidate) -> list[str]:
        limited = [limit.quantity for limit in question.limits_of(candidate)]
        return [*dict.fromkeys([source, *limited])]

    with open_to_read(options.history).connect() as connection:
        found = on_hosts(connection, candidates, hosts, quantities_of)
    if not found:
        raise MlmsError(f"{options.hosts}: no host has the manifest's devices; add 'cpu' to these")
    if is_price:
        currency = next((host.currency for host in hosts if host.currency), None)
        if currency is None:
            raise MlmsError(f"{options.hosts}: no host has a price; write one of an hour to each")
        say(f"price is that of a million inputs, in {currency}")
        found = without_dearer(found, say)
    return found, Remembered(found, question.objective)


@contextlib.contextmanager
def _source(
    options: argparse.Namespace,
    candidates: Sequence[Candidate],
    question: Question,
    set_aside: Mapping[int, str],
) -> Iterator[Measured | Replayed]:
    """Yield what measures the candidates and records it, or the record of an earlier run."""
    from pytest_mlms.config import draw_seed
    from pytest_mlms.decide.advice.measuring import is_timed
    from pytest_mlms.decide.advice.record import AnotherQuestion, Replayed

    labels = [candidate.label for candidate in candidates]
    if options.replay:
        asked = []
        for candidate in candidates:
            timed = filter(is_timed, question.limits_of(candidate))
            asked.append({question.objective, *(limit.quantity for limit in timed)})
        try:
            yield Replayed(options.replay, question.objective, labels, asked)
        except AnotherQuestion as error:
            raise MlmsError(str(error)) from None
        return
    seed = draw_seed(options.seed)
    say(f"inputs are drawn by --mlms-seed {seed}")
    with contextlib.ExitStack() as folders, _record(options.results) as keep:
        aside = {labels[number]: reason for number, reason in set_aside.items()}
        facts = {"candidates": labels, "seed": seed, "set_aside": aside}
        keep(kind="question", objective=question.objective, **facts)
        yield _measured(options, candidates, question, seed, keep, folders)


def _measured(
    options: argparse.Namespace,
    candidates: Sequence[Candidate],
    question: Question,
    seed: int,
    keep: Keep,
    folders: contextlib.ExitStack,
) -> Measured:
    from pytest_mlms.decide.advice.measuring import Opened, hold_all
    from pytest_mlms.decide.advice.record import Measured

    means = means_of(options, question.objective, len(candidates), seed, folders)
    return Measured(
        [candidate.label for candidate in candidates],
        lambda number: Opened(candidates[number], question.limits_of(candidates[number]), means),
        lambda: hold_all([candidate.case for candidate in candidates], means.waiting),
        keep,
    )


def means_of(
    options: argparse.Namespace,
    objective: str,
    count: int,
    seed: int,
    folders: contextlib.ExitStack,
) -> Means:
    """Return what ``count`` candidates are measured with."""
    from pytest_mlms.decide.advice.measuring import Means
    from pytest_mlms.measure.agent.registry import find_predictors
    from pytest_mlms.project import find_project

    return Means(
        predictors=find_predictors(options.predictors),
        cache=options.cache,
        project=find_project(options.paths),
        allow_code=options.allow_code,
        duration=options.duration,
        budget=options.budget / count,
        seed=seed,
        objective=objective,
        show=show_step,
        waiting=telling,
        folders=folders,
    )


@contextlib.contextmanager
def _record(folder: Path) -> Iterator[Keep]:
    """Yield a function that adds a line to the record of this run, which stays however it ends.

    Where the disk refuses a line the record ends, and the search goes on.
    """
    name = time.strftime("advice-%Y%m%dT%H%M%S.jsonl", time.gmtime())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / name).open("ab", buffering=0)
    except OSError as error:
        raise MlmsError(f"{folder / name} can't be written: {error.strerror}") from error
    problem = ""
    with file:

        def keep(**fields: Any) -> None:
            nonlocal problem
            line = f"{json.dumps(fields)}\n".encode()
            try:
                if problem or file.write(line) == len(line):
                    return
                problem = "no space is left"
            except OSError as error:
                problem = error.strerror or str(error)
            say(f"{folder / name}: the record ends here: {problem}; it can't be replayed")

        yield keep
    if not problem:
        say(f"each process is in {folder / name}")
