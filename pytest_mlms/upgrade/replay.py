"""Upgrades that were measured before, decided again from what was recorded: nothing is run.

The raw pairs decide where they are there; without them, the figures of each round that the item's
line has.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from pytest_mlms.errors import MlmsError
from pytest_mlms.records import Comparison, Verdict, comparison_of
from pytest_mlms.upgrade.decision import (
    CLOCKS,
    Clock,
    Figure,
    Round,
    Side,
    available_clocks,
    compare_rounds,
    figures_of,
    is_decided,
    verdict_of,
)
from pytest_mlms.upgrade.explanation import point_of, sides_of

__all__ = ["Replay", "read_upgrades", "replay_upgrade"]


class Replay(NamedTuple):
    """An upgrade as it was judged and as it would be now: after how many of the rounds, and on
    which clock.

    ``from_pairs`` says whether the raw pairs were there.
    """

    sides: str
    point: str
    model: str
    before: str
    now: Verdict
    comparisons: list[Comparison]
    rounds: int
    measured: int
    clock: str
    from_pairs: bool


def read_upgrades(path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Return the folder of a run and its upgrades' lines; ``path`` is that folder or its
    results.jsonl.

    Raises MlmsError where there are none. A last line that is cut off was being written when the
    run was killed.
    """
    file = path / "results.jsonl" if path.is_dir() else path
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise MlmsError(
            f"{file} can't be read: {error.strerror}; name a run's folder, or its results.jsonl"
        ) from None
    found = [
        line
        for line in _parsed(lines, file)
        if line.get("kind") == "upgrade" and line.get("rounds")
    ]
    if not found:
        raise MlmsError(
            f"{file} has no upgrade that was measured; it takes a run with --mlms-against or --mlms-aa"
        )
    return file.parent, found


def _parsed(lines: list[str], file: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError:
            if number < len(lines):
                raise MlmsError(
                    f"{file}:{number}: is not JSON; is it a run's results.jsonl?"
                ) from None


def replay_upgrade(
    folder: Path, line: Mapping[str, Any], tolerance: float | None, clock: Clock | None
) -> Replay:
    """Decide an upgrade again, look by look as it was, with another tolerance of latency or on
    another clock.

    Raises MlmsError where a clock is asked for that was not measured, or without the raw pairs.
    """
    terms, used = line["terms"], cast(Clock, clock or line["clock"])
    rounds = list(_raw_rounds(folder, line))
    from_pairs = len(rounds) == len(line["rounds"])
    if from_pairs:
        if used not in available_clocks(rounds[0]):
            raise MlmsError(
                f"{line['nodeid']}: the clock {used} ({CLOCKS[used]}) was not measured; there are "
                f"{', '.join(available_clocks(rounds[0]))}"
            )
        figures = [figures_of(one, used, line["batch_size"]) for one in rounds]
    elif clock and clock != line["clock"]:
        raise MlmsError(
            f"{line['nodeid']}: another clock needs the raw pairs, pairs-N.npz, which are not there"
        )
    else:
        figures = [
            {name: Figure(*_numbers(one)) for name, one in each["figures"].items()}
            for each in line["rounds"]
        ]
    tolerances = {**terms["tolerances"], **({} if tolerance is None else {"latency": tolerance})}
    others = [comparison_of(one) for one in line.get("comparisons", []) if one["of"] != "rounds"]
    settled = [
        verdict for verdict in (Verdict.ERROR, Verdict.INVALID) if verdict.value == line["verdict"]
    ]
    for count in range(1, len(figures) + 1):
        comparisons = others + compare_rounds(figures[:count], tolerances, terms["gates"])
        verdict = settled[0] if settled else verdict_of(comparisons)
        if is_decided(comparisons, count):
            break
    case = (sides_of(line), point_of(line), line["manifest"]["name"])
    return Replay(
        *case, line["verdict"], verdict, comparisons, count, len(figures), used, from_pairs
    )


def _numbers(figure: list[Any]) -> list[Any]:
    """Return a figure as it was: JSON has no infinity, and an error that isn't there was one."""
    return [float("inf") if value is None else value for value in figure]


def _raw_rounds(folder: Path, line: Mapping[str, Any]) -> Iterator[Round]:
    """Yield the rounds whose raw pairs are there, in their order, up to the first that isn't."""
    for index, one in enumerate(line["rounds"]):
        name = line.get("artifacts", {}).get(f"pairs-{index}.npz")
        if name is None or not (folder / name).exists():
            return
        try:
            with np.load(folder / name, allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise MlmsError(
                f"{folder / name} can't be read: {error}; remove it to decide from the figures"
            ) from None
        yield Round(*(_side(arrays, one["sides"][side], side) for side in ("a", "b")))


def _side(arrays: Mapping[str, Any], facts: Mapping[str, Any], side: str) -> Side:
    own = {name: arrays.get(f"{name}_{side}") for name in ("wall", "wait", "cpu", "device")}
    return Side(
        **cast(Any, own),
        load_seconds=facts["load_seconds"],
        first_seconds=facts["first_seconds"],
        peak_bytes=facts["peak_bytes"],
    )
