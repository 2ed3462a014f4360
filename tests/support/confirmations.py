"""Histories of a model whose framework is a package of ours, for the confirmation of changes."""

from __future__ import annotations

import datetime
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.fft
import scipy.special
import yaml
from sqlalchemy import Connection, Engine, insert, select

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.schema import change, point, series
from pytest_mlms.keep.history.store import open_history
from tests.support.histories import write_lines
from tests.support.packages import wheel_of
from tests.support.project import PREDICTORS, Project
from tests.support.wheels import WHEEL, share_seeds, write_wheel

KEPT = (numpy.fft, scipy.special, yaml)
"""Extension modules that commands import in the process of the tests.

pytester forgets what a test imports first, and these can't be imported twice: the events of a
second yaml are not those that its C parser makes, so that every manifest is empty.
"""

STACKS = """\
pacekit: {framework: pacekit, requirements: [pacekit==VERSION, numpy], threads: 1}
"""
_WORK = 'WORK = int(os.environ.get("LABOUR_WORK", "1"))'
_FAULT = 'FAULT = os.environ.get("LABOUR_FAULT", "")'
_METADATA = "Metadata-Version: 2.1\nName: numpy\nVersion: 99.0\n"


class Nights:
    """A project, its history, and the nights on which it was measured.

    The framework "pacekit" works as much as its package says: 10 ms a call in version 1, 13 in
    version 2; version 3 computes something else. Time is the agent's own, so that no other
    work changes it.
    """

    def __init__(self, project: Project, wheels: Path, seeds: Path) -> None:
        self.project = project
        self.wheels = wheels
        self.cache = project.path / "cache"
        share_seeds(self.cache, seeds)
        self.predictors = project.path / "predictors"
        self.address = project.path / "history.sqlite"
        self.history: Engine = open_history(self.address)
        self._night = 0
        write_predictor(self.predictors)
        for version, facts in (("1", "WORK = 10"), ("2", "WORK = 13"), ("3", "WORK = 10")):
            fault = "wrong" if version == "3" else ""
            write_wheel(wheels, "pacekit", version, code=f"{facts}\nFAULT = {fault!r}")
        write_numpy(wheels)
        project.edit("onnxruntime >=1.17", "pacekit")
        project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
        project.edit("[single_stream, offline]", "[single_stream]")
        project.set_thresholds()

    def measure(self, version: str) -> Path:
        """Run pytest once with a version of the package; return the run's folder."""
        stacks = self.project.folder / "stacks.yaml"
        stacks.write_text(STACKS.replace("VERSION", version))
        result = self.project.run(
            "--mlms-stack=pacekit",
            f"--mlms-cache={self.cache}",
            f"--mlms-predictors={self.predictors}",
            "-ktest_performance",
            "-rs",
        )
        result.assert_outcomes(passed=1)
        return self.project.results.resolve()

    def repeat(self, run: Path, nights: int, ratio: float = 1.0) -> None:
        """Add a run to the history as if it had been measured on these many nights.

        Values are ``ratio`` times those of the run, and scatter by 0.5 %.
        """
        text = (run / "results.jsonl").read_text()
        for _ in range(nights):
            self._night += 1
            lines = [json.loads(line) for line in text.splitlines()]
            folder = self.project.path / "nights" / f"night-{self._night:03}"
            noise = random.Random(self._night).gauss(0, 0.005)
            _move_to(lines, folder.name, self._night, ratio * (1 + noise))
            write_lines(folder, lines)
            add_run(self.history, folder)

    def suspect(self, quantity: str, first_night: int, ratio: float) -> int:
        """Note a change of a quantity as open; return its id."""
        is_own = series.c.control.is_(False)
        with self.history.begin() as connection:
            query = select(series.c.id).where(series.c.quantity == quantity, is_own)
            found = connection.scalar(query) or _add_series(connection, quantity=quantity)
            return _add_change(connection, found, first_night, ratio)

    def control(self, first_night: int) -> None:
        """Note that the host's control item became slower on a night."""
        with self.history.begin() as connection:
            made = _add_series(connection, control=True)
            _add_change(connection, made, first_night, 1.1)

    def changes(self) -> dict[int, Any]:
        """Return the rows of changes by id, without those of the control item."""
        query = select(change).join(series).where(series.c.control.is_(False))
        with self.history.connect() as connection:
            return {row.id: row for row in connection.execute(query)}


def _add_series(connection: Connection, **fields: Any) -> int:
    """Add a series with the points of the median's, but these fields; return its id."""
    is_own = series.c.control.is_(False)
    query = select(series).where(series.c.quantity == "latency_p50", is_own)
    row = {**connection.execute(query).one()._mapping, "key": f"with {fields}", **fields}
    like = row.pop("id")
    made = int(connection.scalar(insert(series).returning(series.c.id), row) or 0)
    for found in connection.execute(select(point).where(point.c.series == like)).all():
        connection.execute(insert(point), {**found._mapping, "series": made})
    return made


def _add_change(connection: Connection, of_series: int, night: int, ratio: float) -> int:
    run = f"night-{night:03}"
    runs = {"first_run": run, "found_run": run}
    levels = {"before": 1.0, "after": ratio, "ratio": ratio}
    row = {"series": of_series, "kind": "step", "status": "open", **runs, **levels}
    return int(connection.scalar(insert(change).returning(change.c.id), row) or 0)


def write_predictor(folder: Path) -> None:
    folder.mkdir()
    text = (PREDICTORS / "labour.py").read_text()
    for line, name in ((_WORK, "WORK"), (_FAULT, "FAULT")):
        assert line in text
        text = text.replace(line, f"import pacekit; {name} = pacekit.{name}")
    version = 'return {"labour": os.environ.get("LABOUR_VERSION", "1.0")}'
    assert version in text
    text = text.replace(version, 'return {"pacekit": pacekit.VERSION}')
    (folder / "pacekit.py").write_text(text)


def write_numpy(wheels: Path) -> None:
    """Write a wheel of numpy that finds this interpreter's, so that nothing is downloaded."""
    info = "numpy-99.0.dist-info"
    packages = Path(np.__file__).parent.parent
    links = wheels.with_name("numpy_here")
    links.mkdir()
    for found in packages.glob("numpy*"):
        if not found.name.endswith(".dist-info"):
            (links / found.name).symlink_to(found)
    files = {
        "numpy_here.pth": f"{links}\n",
        f"{info}/METADATA": _METADATA,
        f"{info}/WHEEL": WHEEL,
        f"{info}/RECORD": "",
    }
    content = wheel_of({name: text.encode() for name, text in files.items()})
    (wheels / "numpy-99.0-py3-none-any.whl").write_bytes(content)


def _move_to(lines: list[dict[str, Any]], run: str, night: int, ratio: float) -> None:
    """Make the lines of a run those of a night, with other values, of calls enough for each."""
    began = datetime.datetime(2026, 3, 1, 2, tzinfo=datetime.timezone.utc)
    time = began + datetime.timedelta(days=night)
    for line in lines:
        line["run"] = run
        line["time"] = time.isoformat(timespec="milliseconds")
        for estimate in line.get("estimates", {}).values():
            estimate["lacking"] = ""
            for key in ("value", "low", "high"):
                if estimate[key] is not None:
                    estimate[key] *= ratio
