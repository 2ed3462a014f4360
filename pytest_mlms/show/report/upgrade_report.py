"""Report of a regressed upgrade in Markdown, for the issue tracker of the software that regressed.

A pure function of the item's record. It names no host, user, path, file or dataset: of what is
one's own it has the name of the model, and those of its layers."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.records import (
    Comparison,
    LayerChange,
    Verdict,
    main_comparison,
    regressed_comparison,
)
from pytest_mlms.core.text import anonymous
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import (
    difference_label,
    format_change,
    percent,
    verdict_label,
)
from pytest_mlms.decide.upgrade.layer_diff import explains
from pytest_mlms.decide.upgrade.rounds import CLOCKS
from pytest_mlms.explain.repro.expectation import told_to_others
from pytest_mlms.provide.stacks.exact_packages import Difference, new_releases
from pytest_mlms.show.pages.item import ItemView, judged_of
from pytest_mlms.show.pages.numbers import NONE, value_text
from pytest_mlms.show.pages.run import RunView, read_run
from pytest_mlms.show.report.step_summary import code, code_block, folded, table
from pytest_mlms.show.report.terminal import count_verdicts
from pytest_mlms.show.report.upgrade_facts import (
    UpgradeSoftware,
    machine_facts,
    making_commands,
    running_commands,
    software_of,
)

if TYPE_CHECKING:
    from pytest_mlms.explain.bisect.record import Record

_MOST_PACKAGES = 30
_LONGEST_TEXT = 2000  # characters of a message
_NO_FAILURE = (Verdict.PASSED, Verdict.IMPROVED, Verdict.INCONCLUSIVE)
_VERDICTS = list(Verdict)  # worst first


@dataclass(frozen=True)
class Evidence:
    """Findings on an item beside its line.

    Attributes:
        bisection: The record of a bisection.
        departing: The first layer whose outputs depart, and by how much.
        model: The lines of the bundle's model, where that is small.
        operator: Its operator, where it has a single node.
        bundle: The name of the bundle that is attached; "" for none.
        reduced: The size of the bundle's model, where it is a part of the whole one.
        checked: What a replay of the bundle has shown.
        notes: What could not be done, each with its reason.
    """

    bisection: Record | None = None
    departing: str = ""
    model: Sequence[str] = ()
    operator: str = ""
    bundle: str = ""
    reduced: str = ""
    checked: str = ""
    notes: Sequence[str] = ()


def regressed_items(items: Sequence[ItemView]) -> list[ItemView]:
    """Return the upgrades that regressed, the worst first."""
    found = [item for item in items if item.verdict is Verdict.REGRESSED]
    return sorted(found, key=lambda item: item.badness)


def upgrade_report(
    items: Sequence[ItemView], results: str, evidence: Evidence | None = None, but: str = ""
) -> str:
    """Return a report for each upgrade that regressed, with rules between, or that there is none.

    ``results`` is the run's folder as commands name it, ``but`` the doubt whether it is whole.
    """
    regressed = regressed_items(items)
    if not regressed:
        counts = count_verdicts(item for item in items if item.kind == "upgrade")
        return f"No upgrade is REGRESSED: {counts or 'there is none'} in this run{but}.\n"
    reports = [item_report(item, results, evidence) for item in regressed]
    return "\n---\n\n".join(reports)


def item_report(item: ItemView, results: str, evidence: Evidence | None = None) -> str:
    """Return the report of one upgrade, whatever its verdict."""
    evidence = evidence or Evidence()
    software = software_of(item)
    parts = [
        f"# {_title(item, software, evidence)}\n",
        _summary(item),
        *_software(software),
        *_verdict(item, evidence),
        *_culprit(evidence, item),
        *_layers(item, evidence),
        *_inputs(item),
        *_running(item, results, evidence),
        *_machine(item),
    ]
    return "\n".join(parts)


def _title(item: ItemView, software: UpgradeSoftware, evidence: Evidence) -> str:
    """Return what regressed in which release, against which; foreign text in code spans."""
    changed = software.framework or next(iter(software.differing), None)
    if changed is None:
        against = item.against.name if item.against else ""
        changed = Difference("", against, item.stack.name)
    others = [other for other in software.differing if other != changed]
    release = new_releases(
        f"{changed.package} {changed.b}", others, lambda text: code(_clean(text, item))
    )
    before = code(_clean(changed.a, item)) or "the baseline"
    return f"{release}: {_regression(item, before, evidence)}"


def _main(item: ItemView, evidence: Evidence) -> Comparison | None:
    """Return the comparison that the report is about: that of a bisection, or that decided."""
    for compared in item.comparisons:
        if compared.quantity == _searched(evidence):
            return compared
    return regressed_comparison(item.comparisons) or main_comparison(item.comparisons)


def _searched(evidence: Evidence) -> str | None:
    return evidence.bisection.quantity if evidence.bisection else None


def _regression(item: ItemView, before: str, evidence: Evidence) -> str:
    """Return the change that the report is about, in a few words."""
    if item.verdict is Verdict.ERROR:
        return f"it fails, and {before} does not"
    compared = _main(item, evidence)
    in_soak = " in a soak" if item.kind == "soak" else ""
    if compared is None and in_soak and item.limits:
        worst = judged_of(item)[0]
        return f"{worst.quantity} {worst.measured} beyond that of {before}"
    if compared is None:
        return f"{item.verdict.value} against {before}, nothing was compared"
    has_regressed = compared.verdict is Verdict.REGRESSED
    if compared.quantity == "agreement" and has_regressed:
        subject = f"{code(evidence.operator)} gives " if evidence.operator else ""
        return f"{subject}other outputs than in {before}"
    if compared.quantity == "crash" and has_regressed:
        return f"it fails{in_soak}, and {before} does not"
    name = compared.quantity.replace("_", " ")
    verdict = "" if has_regressed else f", {verdict_label(compared)}"
    return f"{name} {format_change(compared)} against {before}{verdict}"


def _summary(item: ItemView) -> str:
    parts = [f"Model {code(item.manifest.name)}"]
    parts += map(code, (item.framework, item.case_text.split(", took")[0]))
    return f"{', '.join(part for part in parts if part)}; both sides on one machine, in turns.\n"


def _software(software: UpgradeSoftware) -> Iterator[str]:
    """Yield the packages that differ, and the versions that are alike."""
    yield "## Software\n"
    shown = software.differing[:_MOST_PACKAGES]
    rows = [_package_row(difference) for difference in shown]
    yield table(("package", "A, before", "B, after"), rows) or "No package is known to differ.\n"
    more = len(software.differing) - len(shown)
    if more:
        yield f"{more:,} more packages differ.\n"
    alike = [f"{code(name)} {code(_clean(version))}" for name, version in software.alike.items()]
    if alike:
        yield f"Alike on both sides: {', '.join(alike)}.\n"


def _package_row(difference: Difference) -> list[str]:
    return [code(_clean(text)) or NONE for text in difference]


def _verdict(item: ItemView, evidence: Evidence) -> Iterator[str]:
    yield f"## Verdict: {item.verdict.value}\n"
    compared = sorted(item.comparisons, key=lambda one: _VERDICTS.index(one.verdict))
    judged = _judged(compared, _searched(evidence))
    rows = [_comparison_row(one) for one in judged]
    titles = ("quantity", "verdict", "A", "B", "B over A (interval)", "tolerance")
    if rows:
        yield table(titles, rows)
    for one in judged:
        if one.lacking:
            reason = told_to_others(one.lacking, item.machine.host)
            yield f"{code(one.quantity)}: {code(reason)}\n"
    limits = judged_of(item) if item.kind == "soak" and not rows else ()
    if limits:
        of_limits = ("quantity", "verdict", "B beyond A (interval)", "limit")
        shown = [(each.quantity, each.verdict.value, each.measured, each.bound) for each in limits]
        yield table(of_limits, shown)
    elif not rows and item.message:
        yield code_block(_clean(item.message[:_LONGEST_TEXT], item).splitlines())
    if item.rounds:
        yield f"{_method(item)}\n"


def _judged(comparisons: Sequence[Comparison], searched: str | None) -> list[Comparison]:
    """Return what was decided, and what a bisection searched.

    Where nothing regressed, also what had to be decided and was not: a regression ends an upgrade
    before the rest is decided, which says nothing of the rest.
    """
    has_regressed = any(one.verdict is Verdict.REGRESSED for one in comparisons)
    shown = []
    for one in comparisons:
        is_open = one.verdict is Verdict.INCONCLUSIVE
        is_due = one.gate and not has_regressed
        if not is_open or is_due or one.quantity == searched:
            shown.append(one)
    return shown


def _comparison_row(compared: Comparison) -> list[str]:
    change = format_change(compared)
    if compared.of == "outputs":
        change = difference_label(compared)
    return [
        compared.quantity.replace("_", " "),
        verdict_label(compared),
        value_text(compared.a, compared.unit),
        value_text(compared.b, compared.unit),
        change,
        percent(compared.tolerance),
    ]


def _method(item: ItemView) -> str:
    pairs = sum(measured.pairs for measured in item.rounds)
    rounds = len(item.rounds)
    text = f"Rounds of fresh processes: {rounds:,}; pairs of turns: {pairs:,}"
    for clock, meaning in CLOCKS.items():
        if clock == item.clock:
            text += f"; clock: {meaning}"
    regressed = regressed_comparison(item.comparisons)
    if regressed is not None and regressed.of == "rounds":
        text += ". The risk to call an upgrade REGRESSED that isn't is 1 % at most"
    return f"{text}."


def _culprit(evidence: Evidence, item: ItemView) -> Iterator[str]:
    """Yield what a bisection found, and each of its judgements."""
    record = evidence.bisection
    if record is None or record.answer is None:
        return
    from pytest_mlms.explain.bisect.text import answer_lines, probe_lines

    yield "## Culprit release\n"
    answer = [_clean(line, item) for line in answer_lines(record, record.answer)]
    yield code_block(answer)
    lines = []
    for probe in record.probes:
        lines += [_clean(line, item) for line in probe_lines(probe, record)]
    yield folded("All judgements of the bisection", code_block(lines))


def _layers(item: ItemView, evidence: Evidence) -> Iterator[str]:
    """Yield the first layer that departs, and the layers whose time moved."""
    if evidence.departing:
        yield f"## First departing layer\n\n{code(_clean(evidence.departing, item))}\n"
    if item.verdict is not Verdict.REGRESSED:
        return
    rows = [_layer_row(layer) for layer in item.layers]
    if explains(item.layers, item.comparisons):
        yield "## Layers that moved\n"
        yield table(("layer", "type", "A", "B", "change", "share"), rows)
        yield "Times are of a call, in a traced pass of its own.\n"
    elif item.layers_lacking:
        yield f"No layer times: {code(_clean(item.layers_lacking, item))}\n"


def _layer_row(layer: LayerChange) -> list[str]:
    share = NONE if layer.share is None else percent(layer.share, ".0f")
    change = format_quantity(layer.change, "s")
    sign = "+" if layer.change > 0 else ""
    sides = [value_text(side, "s") for side in (layer.a, layer.b)]
    return [code(layer.name), code(layer.type) or NONE, *sides, f"{sign}{change}", share]


def _inputs(item: ItemView) -> Iterator[str]:
    """Yield the inputs that got worst, by their numbers: names and contents are one's own."""
    if not item.worse_inputs:
        return
    numbers = [_number(line) for line in item.worse_inputs]
    known = [number for number in numbers if number]
    if known:
        yield f"Inputs that got worst, by number, the worst first: {', '.join(known)}.\n"
    else:
        yield f"Inputs that got worst: {len(numbers)}, whose names are left out.\n"


def _number(line: str) -> str:
    """Return the number of an input of a dataset of rows; "" for a file."""
    place, _, _ = line.partition(":")
    number = place.removeprefix("row ")
    return number if number.isdecimal() else ""


def _machine(item: ItemView) -> Iterator[str]:
    """Yield the machine without its name."""
    rows = [(name, code(_clean(value, item))) for name, value in machine_facts(item.machine)]
    if rows:
        yield "## Machine\n"
        yield table(("part", "is"), rows)


def _running(item: ItemView, results: str, evidence: Evidence) -> Iterator[str]:
    """Yield how to run the bundle, and how whoever measured it makes one."""
    yield "## How to run it\n"
    if item.kind == "soak":
        soak = "a process of each side, called in turns for the time of a soak"
        yield f"It takes {soak}: a bundle has too few calls.\n"
        return
    for note in evidence.notes:
        yield f"Note: {code(_clean(note, item))}\n"
    if evidence.bundle:
        yield f"{code(evidence.bundle)} is attached. It needs Python 3.10 or later and pip:\n"
        yield code_block(running_commands(evidence.bundle), "sh")
        yield from _bundle_facts(item, evidence)
        return
    if item.verdict in _NO_FAILURE:
        return
    yield "No bundle is attached. Whoever measured this makes one by:\n"
    is_bisected = evidence.bisection is not None
    yield code_block(making_commands(item, results, is_bisected), "sh")


def _bundle_facts(item: ItemView, evidence: Evidence) -> Iterator[str]:
    if evidence.reduced:
        yield f"Its model is a part of the whole one: {code(_clean(evidence.reduced, item))}\n"
    if evidence.model:
        yield code_block(evidence.model)
    if evidence.checked:
        yield f"Replayed on this machine: {code(_clean(evidence.checked, item))}\n"


def _clean(text: str, item: ItemView | None = None) -> str:
    """Return a text without secrets, paths and the host's name."""
    return anonymous(text, item.machine.host if item else "")


def write_run_upgrades(target: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Write those of a run at its end; return lines that tell the file, and notes on errors."""
    try:
        run = read_run(folder)
        write_upgrades(target, [run], Evidence())
    except MlmsError as error:
        again = f"mlms report {shlex.quote(str(folder))} --upgrade-report"
        return [], [f"{error}; try: {again}"]
    kinds = [item.kind for item in regressed_items(run.items)]
    if not kinds:
        return [f"no upgrade regressed, and {target} says so"], []
    counted = {kind: kinds.count(kind) for kind in ("upgrade", "soak") if kind in kinds}
    nouns = [f"{count:,} {noun}{'s' * (count > 1)}" for noun, count in counted.items()]
    return [f"report of {' and '.join(nouns)} that regressed in {target}"], []


def write_upgrades(target: Path, runs: Sequence[RunView], evidence: Evidence) -> None:
    """Write the upgrades of some runs that regressed; raises MlmsError."""
    texts = []
    for run in runs:
        texts.append(upgrade_report(run.items, results_name(run.folder), evidence, run.but))
    try:
        write_atomically(target, "\n---\n\n".join(texts))
    except OSError as error:
        problem = f"{target}: the report can't be written: {error.strerror}"
        raise MlmsError(problem) from None


def results_name(run: Path) -> str:
    """Return a run's folder as commands name it: below the current folder, else in the default."""
    folder = Path(os.path.realpath(run))  # that of the link "latest"
    here = Path(os.path.realpath("."))
    if folder.is_relative_to(here):
        return folder.relative_to(here).as_posix()
    return f"mlms-results/{folder.name}"
