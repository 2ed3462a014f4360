"""A package is locked, updated, found by the check, and judged against the lock in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.cli.main import main
from tests.support.confirmations import STACKS, Nights
from tests.support.project import Project
from tests.support.wheels import offline  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("offline")]


class Story:
    """A project on a framework of which version 2 is slower, and version 3 computes wrongly."""

    def __init__(self, project: Project, wheels: Path, seeds: Path) -> None:
        self._nights = Nights(project, wheels, seeds)
        self._project = project

    def run(self, version: str, *arguments: str) -> dict[str, Any]:
        """Run pytest with a version of the package; return the verdicts of items by kind."""
        stacks = self._project.folder / "stacks.yaml"
        stacks.write_text(STACKS.replace("VERSION", version))
        folders = [
            f"--mlms-cache={self._nights.cache}",
            f"--mlms-predictors={self._nights.predictors}",
        ]
        self._project.run("--mlms-stack=pacekit", "--mlms-processes=2", *folders, *arguments)
        return {item["kind"]: item["verdict"] for item in self._project.items()}

    def against_lock(self, version: str) -> str:
        """Judge a version against the lock; return the verdict."""
        (verdict,) = self.run(version, "--mlms-against=lock", "--mlms-duration=0.05").values()
        return str(verdict)


@pytest.fixture
def story(project: Project, tmp_path: Path, seeds: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    monkeypatch.chdir(project.path)
    return Story(project, tmp_path / "wheels", seeds)


@pytest.mark.slow(seconds=60)
def test_an_update_is_found_and_judged_against_the_lock(story: Story, capsys: Any) -> None:
    assert story.run("1") == {"accuracy": "PASSED", "performance": "PASSED"}
    assert main(["lock", "write"]) == 0
    lock = Path("mlms.lock")
    text = lock.read_text()
    assert '[stacks."pacekit"]' in text
    assert '  "pacekit==1",\n' in text

    story.run("2")
    capsys.readouterr()
    assert main(["lock", "check"]) == 1
    found = capsys.readouterr().out
    assert "pacekit, 2 items:\n  pacekit  1 -> 2\n" in found
    assert "timings on" in found

    assert story.against_lock("1") == "PASSED"
    assert story.against_lock("2") == "REGRESSED"
    assert story.against_lock("3") == "REGRESSED"
    assert lock.read_text() == text

    (machine,) = [line for line in text.splitlines() if line.startswith("[timings.")]
    lock.write_text(text.replace(machine, '[timings."Another CPU, 2 cores"]'))
    story.run("1")
    capsys.readouterr()
    assert main(["lock", "check"]) == 0
    assert "are not compared: mlms.lock has none of this class" in capsys.readouterr().out
