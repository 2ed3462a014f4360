"""``mlms judge``: a run's upgrades with another tolerance or clock, or two logs of lm-eval."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import add_tolerance, output_width
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Verdict, main_comparison
from pytest_mlms.decide.upgrade.labels import deciding_label, format_change, percent
from pytest_mlms.decide.upgrade.lm_eval import MetricVerdict, find_logs, judge_logs, read_log
from pytest_mlms.decide.upgrade.replay import Replay, read_upgrades, replay_upgrade
from pytest_mlms.decide.upgrade.round_estimate import LEAST_ROUNDS, ROUNDS_TO_FAIL
from pytest_mlms.decide.upgrade.rounds import CLOCKS
from pytest_mlms.show.report.table import GiveWay, fit_table

_VERDICTS = list(Verdict)  # worst first
_HEADER = ("was", "is", "model", "case", "B / A", "tolerance", "rounds")
_OF_DOCUMENTS = ("A", "B", "B - A", "tolerance", "documents")
_LM_EVAL_HEADER = ("verdict", "task", "filter", "metric", *_OF_DOCUMENTS)


def add_judge(commands: Any) -> None:
    """Add the command."""
    judge = commands.add_parser(
        "judge", help="decide upgrades of a run again, or judge logs of lm-eval, without measuring"
    )
    judge.add_argument(
        "results",
        type=Path,
        nargs="?",
        metavar="RESULTS",
        help="a run's folder, or its results.jsonl",
    )
    judge.add_argument(
        "--lm-eval",
        type=Path,
        nargs=2,
        metavar=("A", "B"),
        help="instead of RESULTS: samples that lm_eval --log_samples wrote, files or folders",
    )
    add_tolerance(judge, "how much slower B may be, or by lm-eval less accurate, such as 2%%")
    judge.add_argument(
        "--clock", choices=list(CLOCKS), help="what to time by, if the raw pairs are there"
    )
    judge.set_defaults(run=_judge)


def _judge(options: argparse.Namespace) -> int:
    """Print the verdicts; return 1 where something is REGRESSED now, and for no other verdict."""
    if (options.results is None) == (options.lm_eval is None):
        raise MlmsError("name either RESULTS or --lm-eval A B")
    if options.lm_eval is not None:
        if options.clock is not None:
            raise MlmsError("--clock is for RESULTS; leave it out")
        before, after = options.lm_eval
        return _judge_lm_eval(before, after, options.tolerance)
    folder, upgrades = read_upgrades(options.results)
    replays = [
        replay_upgrade(folder, upgrade, options.tolerance, options.clock) for upgrade in upgrades
    ]
    replays.sort(key=lambda replay: (not replay.is_changed, _VERDICTS.index(replay.verdict)))
    by_sides: dict[str, list[Replay]] = {}
    for replay in replays:
        by_sides.setdefault(replay.upgrade.sides, []).append(replay)
    for sides, of_sides in by_sides.items():
        _print_table(sides, of_sides)
    changed = sum(replay.is_changed for replay in replays)
    print(f"{changed} of {len(replays)} would have been decided otherwise")
    without = sum(not replay.from_pairs for replay in replays)
    if without:
        print(f"{without} decided from the figures of their rounds: the raw pairs are not there")
    few = sum(_lacks_rounds(replay) for replay in replays)
    if few:
        print(
            f"{few} with too few rounds: passing takes {LEAST_ROUNDS} and failing "
            f"{ROUNDS_TO_FAIL}, where earlier versions took fewer; measure again"
        )
    regressed = any(replay.verdict is Verdict.REGRESSED for replay in replays)
    return 1 if regressed else 0


def _lacks_rounds(replay: Replay) -> bool:
    """Return whether a gate is open because rounds are missing; one is enough for wrong outputs."""
    if replay.verdict is Verdict.REGRESSED:
        return False
    gates = [compared for compared in replay.comparisons if compared.gate]
    return any(len(replay.upgrade.rounds) < ROUNDS_TO_FAIL and gate.lacking for gate in gates)


def _print_table(sides: str, replays: Sequence[Replay]) -> None:
    rows = [_row(replay) for replay in replays]
    print(sides)
    order = GiveWay(spare=("rounds",), main="B / A")
    table = fit_table(_HEADER, rows, output_width(), left=4, order=order)
    for prefix in table.prefixes:
        print(prefix)
    print(table.header)
    for number, (replay, row) in enumerate(zip(replays, table.rows, strict=True)):
        print(row)
        if table.below:
            print(f"  {table.below[number]}")
        names = deciding_label(replay.verdict, replay.comparisons)
        if names:
            print(f"  {names}")
    if table.dropped:
        print(f"no room in {output_width()} columns for {', '.join(table.dropped)}")
    print()


def _row(replay: Replay) -> tuple[str, ...]:
    upgrade = replay.upgrade
    change = tolerance = "-"
    compared = main_comparison(replay.comparisons)
    if compared is not None:
        change, tolerance = format_change(compared), percent(compared.tolerance)
    rounds = f"{replay.rounds} of {len(upgrade.rounds)}"
    before = upgrade.verdict.value
    now = replay.verdict.value
    return (before, now, upgrade.manifest.name, upgrade.point, change, tolerance, rounds)


def _judge_lm_eval(a: Path, b: Path, tolerance: float | None) -> int:
    """Print the verdicts on the tasks of both sides, and what isn't judged."""
    if a.resolve() == b.resolve():
        raise MlmsError(f"{a}: A and B are the same; name two runs")
    of_a, of_b = find_logs(a), find_logs(b)
    tasks = sorted(of_a.keys() & of_b.keys())
    if not tasks:
        names = [", ".join(sorted(each)) for each in (of_a, of_b)]
        raise MlmsError(f"A has logs of {names[0]}, and B of {names[1]}; name runs of one task")
    found: list[MetricVerdict] = []
    for task in tasks:
        before, after = read_log(of_a[task][0]), read_log(of_b[task][0])
        found += judge_logs(task, before, after, tolerance)
    found.sort(key=lambda each: _VERDICTS.index(each.compared.verdict))
    print(f"{b} (B) against {a} (A), paired by document")
    _print_lm_eval(found)
    for name, path, ours in (("A", a, of_a), ("B", b, of_b)):
        alone = sorted(ours.keys() - {*tasks})
        if alone:
            print(f"not judged, as only {name} has a log: {', '.join(alone)}")
        older = sum(len(ours[task]) - 1 for task in tasks)
        if older:
            print(f"{older} older logs of these tasks in {path} were left out")
    counts = Counter(each.compared.verdict for each in found)
    print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))
    return 1 if counts[Verdict.REGRESSED] else 0


def _print_lm_eval(found: Sequence[MetricVerdict]) -> None:
    rows = []
    for task, name, compared in found:
        values = [f"{value:.4g}" for value in (compared.a, compared.b)]
        tolerance = percent(compared.tolerance)
        cells = (*values, format_change(compared), tolerance, f"{compared.replicates:,}")
        rows.append((compared.verdict.value, task, name, compared.quantity, *cells))
    order = GiveWay(spare=("tolerance", "A", "B"), main="B - A")
    table = fit_table(_LM_EVAL_HEADER, rows, output_width(), left=4, order=order)
    for line in (*table.prefixes, table.header):
        print(line)
    for number, (row, each) in enumerate(zip(table.rows, found, strict=True)):
        told = "; ".join(filter(None, (each.compared.lacking, each.compared.about)))
        print("\n  ".join(filter(None, (row, *table.below[number : number + 1], told))))
    if table.dropped:
        print(f"no room in {output_width()} columns for {', '.join(table.dropped)}")
