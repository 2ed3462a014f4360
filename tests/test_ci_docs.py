"""The CI workflows in docs/ci.md, by running their commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.project import ROOT, copy_digits

GITHUB, GITLAB, GITHUB_NIGHTLY, GITLAB_NIGHTLY = (
    yaml.safe_load(block)
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)
)
SECONDS = 900


def commands() -> list[str]:
    return [step["run"] for step in GITHUB["jobs"]["models"]["steps"] if "run" in step]


def test_workflows_have_least_permissions_and_pull_requests_a_cache_of_their_own() -> None:
    assert GITHUB["permissions"] == GITHUB_NIGHTLY["permissions"] == {"contents": "read"}
    job, nightly = GITHUB["jobs"]["models"], GITHUB_NIGHTLY["jobs"]["nightly"]
    assert job["if"] == "github.event.pull_request.head.repo.full_name == github.repository"
    assert job["env"]["MLMS_CACHE"] != nightly["env"].get("MLMS_CACHE")
    of_branches, of_main = GITLAB["models"], GITLAB_NIGHTLY["nightly"]
    assert of_branches["variables"]["MLMS_CACHE"] != of_main["variables"].get("MLMS_CACHE")
    assert not any("secrets." in str(step) for step in job["steps"])


def test_both_workflows_run_the_same_commands() -> None:
    install, lint, evaluate, upgrade = commands()
    both = [f"{command} || status=$?" for command in (evaluate, upgrade)]
    assert GITLAB["models"]["script"] == [install, lint, "status=0", *both, "exit $status"]


def test_an_upgrade_is_judged_also_where_a_limit_is_broken() -> None:
    (upgrade,) = [
        step for step in GITHUB["jobs"]["models"]["steps"] if "upgrade" in str(step.get("run"))
    ]
    assert upgrade["if"] == "always()"


def test_both_nightly_jobs_run_the_same_commands() -> None:
    steps = GITHUB_NIGHTLY["jobs"]["nightly"]["steps"]
    install, measure, changes = [step["run"] for step in steps if "run" in step]
    script = GITLAB_NIGHTLY["nightly"]["script"]
    assert script == [install, "status=0", f"{measure} || status=$?", changes, "exit $status"]


def make_repository(folder: Path) -> dict[str, str]:
    """Make a repository as the page expects it; return an environment with a Python of its own."""
    copy_digits(folder / "manifests")
    source = folder / "clone"
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "mlms-results")
    shutil.copytree(ROOT, source, ignore=ignored)
    make_wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "wheels"]
    subprocess.run([*make_wheel, source], cwd=folder, check=True, capture_output=True)
    venv.create(folder / "venv", with_pip=True)
    path = os.pathsep.join([str(folder / "venv" / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "MLMS_LOCKS": str(folder / "locks")}
    environment.pop("VIRTUAL_ENV", None)
    return environment


def results(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "mlms-results" / "latest" / "results.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["type"] == "item"]


@pytest.mark.slow(seconds=40)
def test_the_commands_of_the_workflows_install_check_evaluate_and_gate(tmp_path: Path) -> None:
    environment = make_repository(tmp_path)
    install, lint, evaluate, upgrade = commands()

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    for command in (install, lint):
        done = run(command)
        assert done.returncode == 0, done.stdout + done.stderr
    done = run(f"{evaluate} -k accuracy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "models.xml").exists()
    run(f"{upgrade} -k b64")  # any verdict on the speed of two versions will do
    assert {line["kind"] for line in results(tmp_path)} == {"upgrade"}
    assert not {line["verdict"] for line in results(tmp_path)} & {"ERROR", "SKIPPED"}
