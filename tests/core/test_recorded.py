"""Programs and files of a line of results are not used as they are told."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

from pytest_mlms.core.recorded import Recorded, recorded_artifacts, recorded_launch
from tests.support.project import ROOT

KEYS = {"launch", "launch_against", "executable", "artifacts"}
WRITERS = {
    "core/recorded.py",
    "keep/results/item_result.py",  # it writes them
    "items/suite.py",  # of the item that runs
    "show/report/reporter.py",  # names that users' own tests may not use
    "show/report/benchmark_json.py",  # it copies them
    "distribute/remote/result_transfer.py",  # a worker's own files, and the loss of them
    "distribute/remote/hosts.py",  # of another record
    "show/portal/index_writer.py",  # it checks each path by is_file_of_run
    "show/portal/api.py",  # a part of an address
    "provide/artifacts/fetch.py",  # a folder of the cache
}


def test_only_one_module_reads_what_a_line_tells_of_programs_and_files() -> None:
    found = set()
    for path in (ROOT / "pytest_mlms").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in KEYS:
                found.add(str(path.relative_to(ROOT / "pytest_mlms")))
    by_recorded_launch = {"items/resume.py", "explain/repro/making.py", "explain/repro/software.py"}
    assert found - WRITERS == by_recorded_launch


def test_nothing_can_run_or_open_a_recorded_program() -> None:
    program = recorded_launch({"launch": {"command": ["/bin/true", "-s"]}}).program
    assert program is not None
    with pytest.raises(TypeError):
        subprocess.run([program], check=False)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        Path(program)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        os.stat(program)  # type: ignore[arg-type]
    assert program.among([Path("/bin/false"), Path("/bin/true")]) == Path("/bin/true")
    assert program.among([Path("/bin/false")]) is None


@pytest.mark.parametrize("launch", [None, 1, [], {"command": "x", "lock": {}}, {"command": [None]}])
def test_a_launch_of_another_form_tells_nothing(launch: object) -> None:
    found = recorded_launch({"launch": launch})
    assert (found.program, found.exact, found.lacking) == (None, (), "")


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "items/link/secret", "link", "", "\0"]
)
def test_an_artifact_outside_of_its_run_is_none(path: str, tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    run = tmp_path / "run"
    (run / "items").mkdir(parents=True)
    os.symlink(tmp_path, run / "items" / "link")
    os.symlink(tmp_path / "secret", run / "link")
    assert Recorded(path).file_below(run) is None


def test_an_artifact_is_a_file_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    (tmp_path / "items" / "a.npz").touch()
    line = {"artifacts": {"a": "items/a.npz", "b": 1, "c": "items/c.npz", "d": "x" * 300}}
    found = {name: file.file_below(tmp_path) for name, file in recorded_artifacts(line).items()}
    assert found == {"a": tmp_path / "items" / "a.npz", "c": None, "d": None}
