"""A token for ``push`` is no way to run anything: what is pushed, is measured again as data only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.provide.host.machine import machine_state
from tests.support.histories import item_line, run_lines, run_name
from tests.support.packed_runs import pack, results_of
from tests.support.portals import TOKEN, Portal, serving
from tests.support.project import HANG_GUARD, Project
from tests.support.wheels import offline, write_wheel  # noqa: F401

PUSH = "only-a-token-to-push-7d1e"
NIGHTS = 20
SLOW_FROM = 14
EVIL = "items/x"
CODE = "open({marker!r}, 'a').write(__file__ + chr(10))\n"
GONE = ["numpy==0.0.1"]
"""Packages that nothing has: the honest sides end with them."""


REASONS = {
    "folder": "stack folder: results set env: PYTHONPATH, which no stack here has; declare it",
    "path": "results set env: CUDA_VISIBLE_DEVICES",
    "startup": "results set env: PYTHONSTARTUP",
    "everything": "results set env_passthrough: *",
    "links": "results set pip_options: --find-links=",
    "library": "results set libraries: ../x",
    "container": "results set container: evil:1",
    "image": "it ran in the image sha256:0000",
    "address": "results have evil from file:///",
    "origin": "results have evil from file:///",
    "option": "names no package and version",
    "python": "is no version of Python",
    "interpreter": "can't be recreated: stack before: ",
    "manifest": "digits.yaml, which is none of /",
}


def stacks_of(files: Path, program: Path, wheel: Path) -> dict[str, dict[str, Any]]:
    """Return what hostile lines tell of their stacks, and of nothing else, by a name."""
    here = {"interpreter": "current"}
    links = f"--find-links={wheel.parent}"
    return {
        "interpreter": {"declared": {"interpreter": str(program)}},
        "python": {"declared": {"python": str(program)}, "version": str(program)},
        "folder": {"declared": {**here, "env": {"PYTHONPATH": str(files)}}},
        "startup": {"declared": {**here, "env": {"PYTHONSTARTUP": str(files), "LD_PRELOAD": "x"}}},
        "path": {"declared": {**here, "env": {"CUDA_VISIBLE_DEVICES": f"0:{files}"}}},
        "everything": {"declared": {**here, "env_passthrough": ["*"]}},
        "links": {
            "declared": {"requirements": ["evil"], "pip_options": [links]},
            "packages": ["evil==1.0"],
        },
        "address": {"packages": [f"evil @ {wheel.as_uri()}"]},
        "origin": {"packages": [f"evil==1.0 # {wheel.as_uri()}"]},
        "option": {"packages": [f"--find-links=={wheel.parent}", "evil==1.0"]},
        "library": {"declared": {"libraries": {"../x": {"library": "libc.so.6", "package": "x"}}}},
        "image": {"packages": [f"evil:1 @ sha256:{'0' * 64}"]},
        "container": {"declared": {"container": "evil:1"}, "packages": ["other==0.0.1"]},
        "manifest": {},
    }


def lines_of(
    night: int, project: Project, stacks: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the lines of a night: an item for each stack, slower from a night on."""
    head, *_, end = run_lines(night)
    loaded = load_manifest(project.manifest)
    machine = to_plain(machine_state())
    lines = [head]
    for name, hostile in stacks.items():
        is_slow = night >= SLOW_FROM
        declared = hostile.get("declared", {})
        stack = {"name": name, "threads": 1, "cores": [], "declared": declared}
        path = "manifests/digits.yaml"
        if is_slow and name == "manifest":
            path = f"runs/{run_name(night)}/{EVIL}/digits.yaml"
        line = item_line(
            night,
            ratio=(1 + night % 3 / 1000) * (1.3 if is_slow else 1),
            nodeid=f"digits.yaml::test_performance[{name}-cpu-b8-offline]",
            model={"sha256": loaded.model_digests(loaded.manifest.models[0])},
            dataset={"name": "d", "sha256": loaded.dataset_digest},
            manifest={"path": path, "name": loaded.manifest.name, "version": "1.0.0"},
            stack=stack,
            machine=machine,
            batch_size=8,
            launch={"command": ["python"], "lock": hostile.get("packages", GONE)},
        )
        line["python"] = "3.11.7" if is_slow else hostile.get("version", "3.11.6")
        lines.append(line)
    return [*lines, end]


def push(portal: Portal, night: int, project: Project, stacks: dict[str, Any], code: str) -> None:
    manifest = {path.name: path.read_bytes() for path in project.folder.iterdir()}
    files = {**manifest, "sitecustomize.py": code.encode(), "conftest.py": code.encode()}
    packed = {f"{EVIL}/{name}": data for name, data in files.items()}
    packed["results.jsonl"] = results_of(lines_of(night, project, stacks))
    answer = portal.post("/api/v1/runs", pack(packed), Authorization=f"Bearer {PUSH}")
    assert (answer.status, answer.json["history"]) == (201, ""), answer.text


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_nothing_of_a_pushed_line_runs_when_its_change_is_confirmed(
    project: Project, tmp_path: Path
) -> None:
    marker = tmp_path / "it-ran"
    code = CODE.format(marker=str(marker))
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho program >> {marker}\n")
    program.chmod(0o755)
    wheel = write_wheel(tmp_path / "hostile", "evil", "1.0", code=code)
    runs = project.path / "runs"
    runs.mkdir()
    files = runs / run_name(SLOW_FROM) / EVIL
    stacks = stacks_of(files, program, wheel)
    (tmp_path / "tokens").write_text(f"push:{PUSH}\n{TOKEN}\n")
    address = f"--history={project.path / 'history.sqlite'}"
    with serving(runs, address, f"--token-file={tmp_path / 'tokens'}") as portal:
        for night in range(NIGHTS):
            push(portal, night, project, stacks, code)
    command = [sys.executable, "-m", "pytest_mlms", "history", "changes", address]
    confirm = ["--confirm", "-kp50", "--format=json", f"--mlms-cache={tmp_path / 'cache'}"]
    done = subprocess.run(
        [*command, *confirm],
        cwd=project.path,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not marker.exists(), marker.read_text()
    reasons = {
        change["parts"]["stack"]: change["reason"]
        for group in json.loads(done.stdout)["groups"]
        for change in group["changes"]
    }
    assert reasons.keys() == stacks.keys()
    for name, reason in REASONS.items():
        assert reason in reasons[name], (name, reasons[name])
