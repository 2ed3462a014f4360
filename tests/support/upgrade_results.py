"""The folder of a run with an upgrade that was measured before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.decision import compare_rounds, verdict_of
from pytest_mlms.decide.upgrade.figures import figures_of
from pytest_mlms.decide.upgrade.output_check import check_outputs
from pytest_mlms.decide.upgrade.replay import RecordedUpgrade, Replay, read_upgrades, replay_upgrade
from pytest_mlms.decide.upgrade.round_record import RoundRecord, SideRecord
from pytest_mlms.decide.upgrade.rounds import SIDES, Clock, Round, SideName
from tests.support.upgrades import ROUND_RECORD, SIDE_RECORD, random_side

RNG = np.random.default_rng(5)
ROUNDS = [Round(random_side(RNG), random_side(RNG, 1.1)) for _ in range(8)]
SAME = {"y": np.ones(2)}


def record_of(measured: Round, clock: Clock = "adj") -> RoundRecord:
    """Return what a run records of a round."""
    sides: dict[SideName, SideRecord] = {}
    for name, side in zip(SIDES, measured, strict=True):
        sides[name] = replace(
            SIDE_RECORD,
            load_seconds=side.load_seconds,
            first_seconds=side.first_seconds,
            peak_bytes=side.peak_bytes,
        )
    figures = figures_of(measured, clock, batch_size=8)
    return replace(ROUND_RECORD, sides=sides, figures=figures)


def line_of(records: Sequence[RoundRecord], **fields: Any) -> dict[str, Any]:
    """Return the item's line of an upgrade with these rounds."""
    figures = [record.figures for record in records]
    comparisons = [check_outputs(SAME, SAME), *compare_rounds(figures, {"latency": 0.03})]
    line = {
        "type": "item",
        "kind": "upgrade",
        "nodeid": "m.yaml::test_upgrade[new-vs-old-cpu-b8]",
        "verdict": verdict_of(comparisons),
        "manifest": {"name": "digits", "path": "m.yaml", "version": "1.0.0"},
        "stack": {"name": "new", "threads": 1, "cores": []},
        "against": {"name": "old", "threads": 1},
        "framework": "mxnet",
        "device": "cpu",
        "batch_size": 8,
        "clock": "adj",
        "terms": Criteria({"latency": 0.03}),
        "rounds": records,
        "comparisons": comparisons,
    }
    plain: dict[str, Any] = to_plain({**line, **fields})
    return plain


class RunFolder:
    """The folder of a run with one upgrade of eight rounds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "results.jsonl"

    def write(self, **fields: Any) -> None:
        """Write the results, without raw pairs."""
        line = line_of([record_of(measured) for measured in ROUNDS], **fields)
        self.file.write_text(json.dumps(line, allow_nan=False) + "\n")

    def write_with_pairs(self, **fields: Any) -> None:
        """Write the results and the raw pairs of all rounds."""
        names = {}
        for index, measured in enumerate(ROUNDS):
            arrays: dict[str, Any] = {}
            for side, values in zip("ab", measured, strict=True):
                for name, array in values.arrays().items():
                    arrays[f"{name}_{side}"] = array
            name = f"pairs-{index}.npz"
            np.savez(self.path / name, **arrays)
            names[name] = name
        self.write(**fields, artifacts=names)

    @property
    def upgrade(self) -> RecordedUpgrade:
        _, (upgrade,) = read_upgrades(self.path)
        return upgrade

    def replay(self, tolerance: float | None = None, clock: Clock | None = None) -> Replay:
        return replay_upgrade(self.path, self.upgrade, tolerance, clock)
