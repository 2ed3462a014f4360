"""Study of bisections: the histories that it draws, how answers are judged, and one of its runs."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from bisect_plants import PLANTS, RELEASES, Build, History, write_project
from bisect_study import Run, judge, parse_options, table_lines

HEALTHY = Build()


def histories(name: str) -> list[History]:
    return [PLANTS[name].draw(random.Random(seed)) for seed in range(200)]


@pytest.mark.parametrize("name", ["slower", "wrong", "crash"])
def test_a_change_begins_at_the_release_to_accuse_and_stays(name: str) -> None:
    accused = set()
    for history in histories(name):
        changed = [version for version, build in history.releases.items() if build != HEALTHY]
        versions = list(history.releases)
        assert len(versions) == RELEASES
        assert changed == versions[versions.index(history.expected.release) :]
        accused.add(history.expected.release)
    assert len(accused) == RELEASES - 1


def test_a_change_that_is_undone_is_neither_in_the_first_nor_in_the_last_release() -> None:
    for history in histories("undone"):
        builds = list(history.releases.values())
        assert builds[0] == builds[-1] == HEALTHY
        assert any(build != HEALTHY for build in builds)


def test_a_drift_is_as_large_as_a_step_in_the_end() -> None:
    (history, *_) = histories("drift")
    layers = [build.layers for build in history.releases.values()]
    assert layers == list(range(150, 162))


def test_releases_of_a_history_compute_the_same_but_those_with_wrong_outputs() -> None:
    images = np.random.default_rng(1).random((4, 1, 8, 8), np.float32)

    def outputs(build: Build) -> Any:
        space: dict[str, Any] = {}
        exec(build.code, space)
        return space["Network"]().run(images)

    expected = outputs(HEALTHY)
    assert np.array_equal(outputs(Build(layers=162)), expected)
    assert not np.allclose(outputs(Build(fault="wrong")), expected)


def run_of(kind: str, new: str) -> Run:
    history = History(
        {"1.0.0": HEALTHY, "1.1.1": HEALTHY}, PLANTS["drift"].draw(random.Random()).expected
    )
    record = {"answer": {"kind": kind, "new": new}, "probes": [{"run": "a"}, {"run": ""}]}
    return judge("drift", 0, history, record, 3.0)


def test_an_answer_is_right_wrong_or_an_accusation_of_a_wrong_release() -> None:
    right = run_of("gradual", "1.1.1")
    assert (right.is_right, right.is_wrongly_accused, right.probes) == (True, False, 1)
    undecided = run_of("range", "1.1.1")
    assert (undecided.is_right, undecided.is_wrongly_accused) == (False, False)
    accused = run_of("found", "1.1.1")
    assert (accused.is_right, accused.is_wrongly_accused) == (False, True)
    *_, row = table_lines([right, undecided, accused])
    assert row.startswith("| a drift of 0.7 % a release | 1 of 3 | 1 | 1, 1 |")


def test_a_bisection_without_an_answer_is_not_right() -> None:
    history = PLANTS["undone"].draw(random.Random(1))
    run = judge("undone", 0, history, {"answer": None, "probes": []}, 3.0)
    assert not run.is_right
    assert run.kind == "none"


def test_the_options_of_the_study() -> None:
    options = parse_options(["--runs", "2", "--plants", "wrong", "--budget", "30"])
    assert (options.runs, options.plants, options.budget) == (2, ["wrong"], 30.0)


def test_pip_sees_one_wheel_of_each_release(tmp_path: Path) -> None:
    history = PLANTS["slower"].draw(random.Random(3))
    write_project(tmp_path / "run", PLANTS["slower"], history, tmp_path / "shared")
    command = [sys.executable, "-m", "pip", "index", "versions", "slower", "--no-index"]
    links = f"--find-links={tmp_path / 'run' / 'wheels'}"
    done = subprocess.run([*command, links], capture_output=True, text=True, check=True)
    _, _, versions = done.stdout.splitlines()[1].partition(": ")
    assert versions.split(", ") == list(reversed(history.releases))
    assert "slower" in (tmp_path / "run" / "manifests" / "digits.yaml").read_text()
