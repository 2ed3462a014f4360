"""docs/tutorial.md to the letter: its files are written and its commands run, in an empty folder.

Only what a busy machine may change is left open: verdicts on speed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
FILES = {"fast:": "models/stacks.yaml", "name: models": ".github/workflows/models.yml"}
"""How a file of the page begins -> its name, which the page has in its text."""

SECONDS = 900
SHORT = "--mlms-duration=0.05 --mlms-budget=20"
"""How long is measured; ci/demo and the workflows of docs/ci.md measure as long as by default."""
NUMBER = re.compile(r"\d[\d.,]*")


class Reader:
    """Somebody who does what the page says, in a folder beside a clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "gate"
        ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "mlms-results")
        shutil.copytree(ROOT, folder / "pytest-mlms", ignore=ignored)
        locks = str(folder / "locks")
        self.environment = {**os.environ, "MLMS_LOCKS": locks, "COLUMNS": "100"}
        for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYTEST_ADDOPTS"):
            self.environment.pop(name, None)
        self.environment["PIP_NO_COMPILE"] = "0"  # as --no-compile: imports compile what they need
        self.use(self.folder / ".venv")
        self.output = ""

    def use(self, venv: Path) -> None:
        """Activate an environment, which a command may still have to make."""
        path = os.pathsep.join([str(venv / "bin"), os.environ["PATH"]])
        self.environment["PATH"] = path

    def run(self, commands: str) -> int:
        """Run lines of a shell; return the status of the last, and keep what it printed."""
        has_reproduce_line = "-k accuracy" in commands  # which would have these options, too
        short = {} if has_reproduce_line else {"PYTEST_ADDOPTS": SHORT}
        done = subprocess.run(
            ["bash", "-ec", commands],
            cwd=self.folder if self.folder.exists() else self.folder.parent,
            env={**self.environment, **short},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        self.output = done.stdout
        assert "Traceback" not in done.stdout, done.stdout
        return done.returncode

    def write(self, text: str) -> None:
        """Write a file of the page."""
        (name,) = [name for start, name in FILES.items() if text.startswith(start)]
        assert f"`{name}`" in PAGE
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def edit(self, lines: str) -> None:
        """Replace a line of the manifest, as a diff says."""
        old, *new = lines.splitlines(keepends=True)
        assert old.startswith("-")
        assert all(line.startswith("+") for line in new)
        path = self.folder / "models" / "digits.yaml"
        text = path.read_text()
        assert text.count(f"\n{old[1:]}") == 1, text
        path.write_text(text.replace(old[1:], "".join(line[1:] for line in new)))

    def verdicts(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and the verdict of each item of the last run."""
        for line in (self.folder / "mlms-results/latest/results.jsonl").read_text().splitlines():
            item = json.loads(line)
            if item["type"] == "item":
                yield item["kind"], item["verdict"]


def judge(reader: Reader, command: str, status: int) -> None:
    """Hold a command against what the page says of it."""
    if not re.search(r"\bpytest .*models", command):
        assert status == 0, reader.output
        return
    found = dict(reader.verdicts())
    assert found, reader.output
    assert not set(found.values()) & {"ERROR", "SKIPPED"}, reader.output
    if "accuracy" in found:
        assert found["accuracy"] == ("FAILED" if "# fails" in command else "PASSED")
    if "-k accuracy" in command:
        assert status == ("# fails" in command)


def pattern_of(line: str) -> str:
    return " ".join(NUMBER.sub("0", line).split())


@pytest.mark.slow(seconds=300)
def test_the_tutorial_works_to_the_letter(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    command = ""
    for language, text in BLOCKS:
        if language == "yaml":
            reader.write(text)
        elif language == "diff":
            reader.edit(text)
        elif language == "text":
            if "-k accuracy" in command:
                printed = set(map(pattern_of, reader.output.splitlines()))
                assert not {*map(pattern_of, text.splitlines())} - printed - {"…"}
        else:
            command = text
            judge(reader, command, reader.run(command))
    workflow = yaml.safe_load((reader.folder / FILES["name: models"]).read_text())
    assert reader.run("python3 -m venv ../ci") == 0, reader.output
    reader.use(tmp_path / "ci")
    for step in workflow["jobs"]["models"]["steps"]:
        if "run" in step:
            judge(reader, step["run"], reader.run(step["run"]))


def test_the_tutorial_is_read_whole() -> None:
    languages = [language for language, _ in BLOCKS]
    assert languages.count("") >= 9
    assert languages.count("yaml") == len(FILES)
    assert languages.count("diff") == 2
    assert set(languages) == {"", "diff", "text", "yaml"}
