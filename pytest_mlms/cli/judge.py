"""``mlms judge``: what another tolerance or another clock would have made of a run's upgrades."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.options import read_share
from pytest_mlms.records import Verdict
from pytest_mlms.report.table import KEEP, format_table
from pytest_mlms.upgrade.decision import CLOCKS
from pytest_mlms.upgrade.explanation import change_of
from pytest_mlms.upgrade.replay import Replay, read_upgrades, replay_upgrade

__all__ = ["add_judge"]

_WIDTH = 100
_ORDER = list(Verdict)


def add_judge(commands: Any) -> None:
    """Add the command."""
    judge = commands.add_parser(
        "judge", help="decide the upgrades of a run again, without measuring"
    )
    judge.add_argument(
        "results", type=Path, metavar="RESULTS", help="a run's folder, or its results.jsonl"
    )
    judge.add_argument(
        "--tolerance",
        type=read_share,
        metavar="SHARE",
        help="how much slower B may be, such as 2%%",
    )
    judge.add_argument(
        "--clock", choices=list(CLOCKS), help="what to time by, if the raw pairs are there"
    )
    judge.set_defaults(run=_judge)


def _judge(options: argparse.Namespace) -> int:
    """Print the table; return 1 where something is worse now, as pytest would have."""
    folder, lines = read_upgrades(options.results)
    found = [replay_upgrade(folder, line, options.tolerance, options.clock) for line in lines]
    found.sort(key=lambda one: (one.before == one.now.value, _ORDER.index(one.now)))
    for sides in dict.fromkeys(one.sides for one in found):
        _show(sides, [one for one in found if one.sides == sides])
    changed = sum(one.before != one.now.value for one in found)
    print(f"{changed} of {len(found)} would have been decided otherwise")
    without = sum(not one.from_pairs for one in found)
    if without:
        print(f"{without} decided from the figures of their rounds: the raw pairs are not there")
    return 1 if any(one.now is Verdict.REGRESSED for one in found) else 0


def _show(sides: str, found: Sequence[Replay]) -> None:
    print(sides)
    header = ("was", "is", "model", "case", "B / A", "tolerance", "rounds")
    width = shutil.get_terminal_size((_WIDTH, 0)).columns if sys.stdout.isatty() else _WIDTH
    for folded in format_table(header, [_row(one) for one in found], width, left=4):
        for line in folded:
            print(line)
    print()


def _row(one: Replay) -> tuple[str, ...]:
    latency = next((each for each in one.comparisons if each.quantity == "latency"), None)
    cells = (
        (change_of(latency, KEEP), f"{100 * latency.tolerance:.3g} %") if latency else ("-", "-")
    )
    return (
        one.before,
        one.now.value,
        one.model,
        one.point,
        *cells,
        f"{one.rounds} of {one.measured}",
    )
