"""Releases of a package of ours, measured by mlms history backfill."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from tests.support.confirmations import Nights
from tests.support.project import PREDICTORS, Project
from tests.support.wheels import offline, write_wheel  # noqa: F401

pytestmark = [pytest.mark.usefixtures("offline"), pytest.mark.slow]

OPTIONS = (
    "-p no:hypothesispytest --mlms-processes=1 --mlms-duration=0.01 "
    f"-Wignore:no_limit_judges --mlms-predictors={PREDICTORS}"
)


@pytest.fixture
def nights(
    project: Project, tmp_path: Path, seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> Nights:
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("PYTEST_ADDOPTS", OPTIONS)
    made = Nights(project, tmp_path / "wheels", seeds)
    project.edit("seed: 7", "seed: 7\n  threads: 1")
    write_wheel(tmp_path / "wheels", "pacekit", "0.9", needs="nowhere")
    write_wheel(tmp_path / "wheels", "pacekit", "4rc1")
    return made


def backfill(nights: Nights, *arguments: str) -> int:
    folders = [f"--mlms-cache={nights.cache}", f"--mlms-predictors={nights.predictors}"]
    history = f"--history={nights.address}"
    words = ["pacekit>=0.9", "manifests", "-ktest_performance", history, *folders, *arguments]
    return main(["history", "backfill", *words])


def test_releases_that_were_never_measured_are_measured_the_newest_first(
    nights: Nights, capfd: pytest.CaptureFixture[str]
) -> None:
    nights.repeat(nights.measure("2"), 1)
    capfd.readouterr()
    assert backfill(nights, "--dry-run", "--last=3") == 0
    plan = capfd.readouterr().out.splitlines()
    assert plan[0].startswith("pacekit 3: 1 item to measure, wheel")
    assert plan[1] == "pacekit 2: in the history"
    assert plan[2].startswith("pacekit 1: 1 item to measure")
    assert backfill(nights) == 1
    output = capfd.readouterr().out
    assert output.index("pacekit 3: 1 item measured") < output.index("pacekit 1: 1 item measured")
    assert "pacekit 0.9: 0 items measured\n  stack pacekit-0.9 can't be made with" in output
    assert "No matching distribution found for nowhere" in output
    capfd.readouterr()
    assert backfill(nights, "--last=3") == 0
    assert "to measure" not in capfd.readouterr().out
    show = ["history", "show", "--by=pacekit", "--quantity=latency_p50"]
    assert main([*show, f"--history={nights.address}"]) == 0
    rows = capfd.readouterr().out.splitlines()
    levels = {row[0]: float(row.split()[2]) for row in rows if row[:2] in ("1 ", "2 ", "3 ")}
    assert levels == pytest.approx({"1": 10.0, "2": 13.0, "3": 10.0}, rel=0.03)
