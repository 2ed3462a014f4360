"""``mlms advise``: the best configuration for an objective under limits, found by measuring."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import (
    add_allow_code,
    add_cache,
    add_predictors,
    add_results,
    output_width,
    positive,
    say,
    seconds_above_0,
    show_step,
)
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.core.records import Limit, Place, Verdict
from pytest_mlms.core.units import UNITS, format_quantity, parse_quantity, parse_share

if TYPE_CHECKING:
    from pytest_mlms.decide.advice.candidates import Candidate, Opened
    from pytest_mlms.decide.advice.search import Advice, Finding, Goal, Process

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LIMIT = re.compile(r"\s*(\w+)\s*(<=|>=|<|>|=)\s*(.+?)\s*")
_TARGET = re.compile(r"\s*(max|min)\s+(\w+)\s*")
_WIDEST = 10.0  # half of an interval that says something, as a share
_INTERRUPTED = 130  # the exit status
_ORDER = ("best", "alike", "open", "near", "worse", "breaks", "failed", "unmeasured")
_WORDS = {
    "near": "near a limit",
    "open": "undecided",
    "breaks": "over a limit",
    "unmeasured": "not measured",
}


def add_advise(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "advise", help="find the best configuration of models for an objective under limits"
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="MANIFEST", help="a manifest")
    parser.add_argument(
        "--objective", required=True, type=_objective, metavar="TEXT", help="as in 'max throughput'"
    )
    parser.add_argument(
        "--subject-to",
        default=[],
        type=_limits,
        metavar="LIMITS",
        dest="limits",
        help="as in 'latency_p99 <= 15 ms, top1 >= 75 %%, peak_memory <= 2 GiB'",
    )
    parser.add_argument(
        "--stack",
        "--mlms-stack",
        action="append",
        default=[],
        metavar="STACK",
        dest="stacks",
        help="stack that runs models, as of pytest; may be repeated",
    )
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
    add_allow_code(parser)
    add_predictors(parser)
    add_cache(parser)
    add_results(parser, "folder for the record of each process")
    parser.set_defaults(run=_advise)


def _objective(text: str) -> tuple[str, Quantity]:
    found = _TARGET.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no objective; write max or min and a name")
    quantity = _known(found[2])
    if quantity.kind != "performance" or quantity.estimator is None:
        advice = "write one that processes differ in, such as throughput, and limit this one"
        raise argparse.ArgumentTypeError(f"{quantity.name} is the same in each process; {advice}")
    wanted = "max" if quantity.better == "higher" else "min"
    if found[1] != wanted:
        raise argparse.ArgumentTypeError(f"more {quantity.name} is not the aim; write {wanted}")
    return found[1], quantity


def _known(name: str) -> Quantity:
    quantity = QUANTITIES.get(name)
    if quantity is None:
        known = [each.name for each in QUANTITIES.values() if _is_limitable(each)]
        near = [each for each in known if name[:4] in each] or known
        advice = f"write one of {', '.join(near[:8])}"
        raise argparse.ArgumentTypeError(f"there is no quantity {name!r}; {advice}")
    return quantity


def _is_limitable(quantity: Quantity) -> bool:
    is_timed = quantity.kind == "performance" and quantity.estimator is not None
    return quantity.kind == "accuracy" or (is_timed and quantity.name != "batch_agreement")


def _limits(text: str) -> list[Limit]:
    found: dict[str, Limit] = {}
    for part in filter(str.strip, text.split(",")):
        limit = _limit(part)
        if limit.quantity in found:
            raise argparse.ArgumentTypeError(f"{limit.quantity} has two limits; write one")
        found[limit.quantity] = limit
    return list(found.values())


def _limit(text: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    if not found:
        advice = "write a name, <= or >=, and a value, as in 'latency_p99 <= 15 ms'"
        raise argparse.ArgumentTypeError(f"{text.strip()!r} is no limit; {advice}")
    name, sign, value = found.groups()
    quantity = _known(name)
    if not _is_limitable(quantity):
        advice = f"it is measured by items of {quantity.kind}, under load or in batches"
        raise argparse.ArgumentTypeError(f"{name} can't be a limit here: {advice}")
    wanted = "<=" if quantity.bound == "max" else ">="
    if sign[0] != wanted[0]:
        advice = f"write {name} {wanted} {value}"
        raise argparse.ArgumentTypeError(f"{name} {sign} {value} would ask for the worse; {advice}")
    try:
        number = parse_quantity(value, quantity.unit) if quantity.unit in UNITS else float(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{name}: {error}") from None
    return Limit(name, number, Place(Path("--subject-to"), 1))


def _numbers(text: str) -> list[int]:
    return [positive(word.strip()) for word in text.split(",")]


def _option(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE,VALUE…")
    return name, [_scalar(value) for value in values.split(",")]


def _scalar(text: str) -> Any:
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, (int, float, bool)):
            return value
    return text


def _budget(text: str) -> float:
    found = _BUDGET.fullmatch(text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write it as in 90s, 10min or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def _share(text: str) -> float:
    try:
        share = parse_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not share:
        raise argparse.ArgumentTypeError("what differs by nothing can't be told; write 1 % or more")
    return share


def _advise(options: argparse.Namespace) -> int:
    """Print the advice; return 1 where nothing is shown to be within the limits."""
    from pytest_mlms.decide.advice.candidates import Means, Opened
    from pytest_mlms.decide.advice.search import Goal, search
    from pytest_mlms.measure.agent.registry import find_predictors

    direction, quantity = options.objective
    predictors = find_predictors(options.predictors)
    candidates = list(_candidates(options, predictors))
    means = Means(
        predictors=predictors,
        cache=options.cache,
        allow_code=options.allow_code,
        duration=options.duration,
        budget=options.budget / len(candidates),
        limits=options.limits,
        objective=quantity.name,
        show=show_step,
    )
    opened = [Opened(candidate, means) for candidate in candidates]
    say(
        f"{direction} {quantity.name} of {len(candidates)} candidates, "
        f"{options.budget:g} s of processes at most"
    )
    with _record(options.results) as keep:
        run = _Run(opened, options.limits, keep)
        able = run.within_limits_on_answers()
        goal = Goal(
            quantity.name,
            quantity.sign,
            [limit for limit in options.limits if _is_timed(limit.quantity)],
            options.tolerance,
            budget=options.budget - run.spent,
        )
        advice = search(
            len(able),
            goal,
            lambda index: run.measure(able[index]),
            lambda index, name, confidence: opened[able[index]].reach(name, confidence),
        )
    findings = {**run.left_out, **dict(zip(able, advice.findings, strict=True))}
    best = None if advice.best is None else able[advice.best]
    _show_table(candidates, findings, goal)
    _show_answer(candidates, findings, best, advice, goal, options)
    if advice.ended == "interrupted":
        return _INTERRUPTED
    return 0 if best is not None else 1


def _is_timed(name: str) -> bool:
    return QUANTITIES[name].kind == "performance"


def _candidates(options: argparse.Namespace, predictors: Mapping[str, Path]) -> Iterator[Candidate]:
    from pytest_mlms.author.loading import load_manifest
    from pytest_mlms.decide.advice.candidates import Choices, candidates_of
    from pytest_mlms.manifest.load import option_problems
    from pytest_mlms.project import project_stacks
    from pytest_mlms.provide.stacks.declared import choose, stacks_for

    chosen = choose(options.stacks, project_stacks(options.paths), predictors, "--stack")
    choices = Choices(options.batch_sizes, options.threads, dict(options.options))
    found: list[Candidate] = []
    for path in options.paths:
        loaded = load_manifest(path, predictors, options.allow_code)
        offered = {model.name for model in loaded.manifest.models}
        stacks_of = partial(stacks_for, chosen=chosen, offered=offered)
        found += candidates_of(loaded, stacks_of, choices, predictors)
    if not found:
        raise MlmsError("no model of the manifests is for these stacks; name others by --stack")
    for name, values in choices.options.items():
        if not any(name in each.options for each in found):
            problems = option_problems(found[0].case.stack.framework, {name: values[0]}, predictors)
            raise MlmsError(f"--option {name}: {next(iter(problems))[1]}")
    yield from found


@contextlib.contextmanager
def _record(folder: Path) -> Iterator[Any]:
    """Yield a function that adds a line to the record of this run, which stays however it ends."""
    name = time.strftime("advice-%Y%m%dT%H%M%S.jsonl", time.gmtime())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / name).open("a", encoding="utf-8")
    except OSError as error:
        raise MlmsError(f"{folder / name} can't be written: {error.strerror}") from error
    with file:

        def keep(**fields: Any) -> None:
            file.write(json.dumps(fields) + "\n")
            file.flush()

        yield keep
    say(f"each process is in {folder / name}")


class _Run:
    """The processes of a run: what they took, and what is left out before any is timed."""

    def __init__(self, opened: Sequence[Opened], limits: Sequence[Limit], keep: Any) -> None:
        self.spent = 0.0
        self.left_out: dict[int, Finding] = {}
        self._opened = opened
        self._limits = [limit for limit in limits if not _is_timed(limit.quantity)]
        self._keep = keep

    def within_limits_on_answers(self) -> list[int]:
        """Return the candidates whose answers are surely good enough, measured once a model."""
        from pytest_mlms.decide.advice.evidence import Range
        from pytest_mlms.decide.advice.search import Finding

        if not self._limits:
            return [*range(len(self._opened))]
        known: dict[object, Finding] = {}
        for number, opened in enumerate(self._opened):
            key = opened.candidate.answering
            if key not in known:
                began = time.monotonic()
                try:
                    decisions = opened.judge_answers()
                except MlmsError as error:
                    known[key] = Finding("failed", 0, reason=str(error))
                    continue
                finally:
                    self.spent += time.monotonic() - began
                    if key in known:
                        self.left_out[number] = known[key]
                verdicts = {decision.verdict for decision in decisions}
                ranges = {
                    each.limit.quantity: Range(
                        each.estimate.value, each.estimate.low, each.estimate.high
                    )
                    for each in decisions
                }
                known[key] = Finding(
                    "breaks" if Verdict.FAILED in verdicts else "open",
                    0,
                    ranges,
                    checks=["meets"] if verdicts == {Verdict.PASSED} else [],
                )
                self._keep(
                    candidate=opened.candidate.label, answers={n: [*r] for n, r in ranges.items()}
                )
            if not known[key].checks:
                self.left_out[number] = known[key]
        return [number for number in range(len(self._opened)) if number not in self.left_out]

    def measure(self, number: int) -> Process:
        """Measure a candidate for one more process, and keep it."""
        from pytest_mlms.decide.advice.search import Process

        opened = self._opened[number]
        label = opened.candidate.label
        began = time.monotonic()
        try:
            values = opened.measure()
        except MlmsError as error:
            say(f"{label}: {str(error).splitlines()[0]}")
            self._keep(candidate=label, error=str(error))
            raise
        seconds = time.monotonic() - began
        self._keep(candidate=label, values=values, seconds=seconds)
        return Process(values, seconds)


def _show_table(
    candidates: Sequence[Candidate], findings: Mapping[int, Finding], goal: Goal
) -> None:
    """Print a row for each candidate, the best first; * marks those on the Pareto front."""
    from pytest_mlms.show.report.table import GiveWay, fit_table

    names = [goal.objective, *(limit.quantity for limit in goal.limits)]
    names = [*dict.fromkeys(names)]
    front = _pareto(findings, names)
    rows = []
    several = len({each.case.loaded.path for each in candidates}) > 1
    order = sorted(
        findings,
        key=lambda each: (_ORDER.index(findings[each].standing), _rank(findings[each], goal)),
    )
    for number in order:
        finding = findings[number]
        cells = [_range_text(finding, name) for name in names]
        ratio = "" if finding.ratio is None else _ratio_text(finding)
        mark = "*" if number in front else ""
        standing = _WORDS.get(finding.standing, finding.standing)
        rows.append(
            [
                mark,
                candidates[number].words(several),
                standing,
                *cells,
                ratio,
                str(finding.processes),
            ]
        )
    header = ["", "candidate", "", *names, "best / it", "processes"]
    table = fit_table(header, rows, output_width(), 3, GiveWay(spare=("processes",)))
    print("\n".join([*table.prefixes, table.header]))
    for index, row in enumerate(table.rows):
        print(row)
        if table.below:
            print(f"  {table.below[index]}")
    if table.dropped:
        print(f"no room in {output_width()} columns for {', '.join(table.dropped)}")
    if front:
        print("* no other is better in one of these quantities without being worse in another")


def _rank(finding: Finding, goal: Goal) -> float:
    found = finding.ranges.get(goal.objective)
    return goal.sign * found.mean if found else math.inf


def _pareto(findings: Mapping[int, Finding], names: Sequence[str]) -> set[int]:
    """Return the candidates that none beats or equals in all means."""
    points = {}
    for number, finding in findings.items():
        if all(name in finding.ranges for name in names):
            points[number] = [QUANTITIES[name].sign * finding.ranges[name].mean for name in names]
    front = set()
    for number, own in points.items():
        beaten = any(
            other != own and all(a <= b for a, b in zip(other, own, strict=True))
            for other in points.values()
        )
        if not beaten:
            front.add(number)
    return front if len(names) > 1 else set()


def _range_text(finding: Finding, name: str) -> str:
    found = finding.ranges.get(name)
    if found is None:
        return "-"
    value = format_quantity(found.mean, QUANTITIES[name].unit)
    half = max(found.high - found.mean, found.mean - found.low) / found.mean
    return f"{value} ± {100 * half:.0f} %" if half < _WIDEST else value


def _ratio_text(finding: Finding) -> str:
    assert finding.ratio is not None
    _, low, high = finding.ratio
    return f"{low:.2f} to {high:.2f}" if math.isfinite(high) else ""


def _show_answer(
    candidates: Sequence[Candidate],
    findings: Mapping[int, Finding],
    best: int | None,
    advice: Advice,
    goal: Goal,
    options: argparse.Namespace,
) -> None:
    print()
    for number, finding in findings.items():
        if finding.standing == "failed":
            print(f"{candidates[number].label}: {finding.reason.splitlines()[0]}")
    if best is None:
        print(_without_answer(findings, advice, goal))
        return
    share = f"{100 * goal.tolerance:g} %"
    alike = [candidates[n].label for n, each in findings.items() if each.standing == "alike"]
    chosen = candidates[best]
    only = len(findings) == 1
    if only:
        print(f"{chosen.label} is the only candidate, and within the limits")
    elif advice.is_sure:
        print(f"{chosen.label} is the best: no other is better by more than {share}")
    else:
        print(f"{chosen.label} seems best, which is not sure: {_ended(advice, options)}")
    if alike:
        print(f"can't be told from it: {', '.join(alike)}")
    risk = f"{100 * goal.risk:g} %"
    print(f"the risk that it breaks a limit, or that a better one was left out, is {risk}")
    print()
    print(_fragment(chosen))


def _without_answer(findings: Mapping[int, Finding], advice: Advice, goal: Goal) -> str:
    kinds = {finding.standing for finding in findings.values()}
    if kinds == {"failed"}:
        return "all candidates failed"
    if kinds <= {"failed", "breaks"}:
        return "nothing fits: each candidate surely breaks a limit; loosen one, or try others"
    if kinds <= {"failed", "breaks", "near"}:
        return (
            "nothing is surely within the limits: what may be is within "
            f"{100 * goal.tolerance:g} % of one; loosen it by so much"
        )
    reason = {"budget": "the budget is too small", "interrupted": "interrupted"}
    text = reason.get(advice.ended, "the noise is too large")
    return f"nothing is shown to be within the limits: {text}; raise --budget"


def _ended(advice: Advice, options: argparse.Namespace) -> str:
    if advice.ended == "interrupted":
        return "interrupted; it is judged by what there is"
    if advice.ended == "budget":
        return f"the budget of {options.budget:g} s is spent; raise --budget"
    return f"{advice.rounds} processes of each don't tell; quieten the machine"


def _fragment(chosen: Candidate) -> str:
    """Return what to write into the manifest in place of its section, and how to run it."""
    import yaml

    case = chosen.case
    manifest = case.loaded.manifest
    evaluate = manifest.evaluate.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    evaluate.update(batch_sizes=[case.batch_size], devices=[case.device])
    if case.threads:
        evaluate["threads"] = case.threads
    sections: dict[str, Any] = {"evaluate": evaluate}
    if chosen.options:
        models = [
            model.model_dump(mode="json", exclude_unset=True, exclude_none=True)
            for model in manifest.models
        ]
        index = manifest.models.index(case.model)
        models[index]["options"] = {**case.model.options, **chosen.options}
        sections = {"models": models, **sections}
    text = yaml.safe_dump(sections, sort_keys=False, allow_unicode=True).rstrip()
    place = case.loaded.place()
    stack = case.stack.framework if case.stack.name == "here" else case.stack.name
    return f"# in {place.path}, run by {stack}, in place of {' and '.join(sections)}:\n{text}"
