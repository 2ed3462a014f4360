"""``mlms judge``: the verdicts on a run's upgrades with another tolerance or another clock."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import add_tolerance, output_width
from pytest_mlms.core.records import Verdict, main_comparison
from pytest_mlms.decide.upgrade.labels import deciding_label, format_change, percent
from pytest_mlms.decide.upgrade.replay import Replay, read_upgrades, replay_upgrade
from pytest_mlms.decide.upgrade.round_estimate import LEAST_ROUNDS, ROUNDS_TO_FAIL
from pytest_mlms.decide.upgrade.rounds import CLOCKS
from pytest_mlms.show.report.table import GiveWay, fit_table

_VERDICTS = list(Verdict)  # worst first
_HEADER = ("was", "is", "model", "case", "B / A", "tolerance", "rounds")


def add_judge(commands: Any) -> None:
    """Add the command."""
    judge = commands.add_parser(
        "judge", help="decide the upgrades of a run again, without measuring"
    )
    judge.add_argument(
        "results", type=Path, metavar="RESULTS", help="a run's folder, or its results.jsonl"
    )
    add_tolerance(judge, "how much slower B may be, such as 2%%")
    judge.add_argument(
        "--clock", choices=list(CLOCKS), help="what to time by, if the raw pairs are there"
    )
    judge.set_defaults(run=_judge)


def _judge(options: argparse.Namespace) -> int:
    """Print the verdicts; return 1 where an upgrade is REGRESSED now, and for no other verdict."""
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
