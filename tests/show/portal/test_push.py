"""Runs of pytest that push themselves to a real portal, and what becomes of them without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.histories import run_name, write_run
from tests.support.portals import TOKEN, Portal, serving
from tests.support.project import HANG_GUARD, Project

AWAY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    with serving(tmp_path_factory.mktemp("portal")) as made:
        yield made


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLMS_PUSH_TOKEN", TOKEN)


def mlms_push(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_mlms", "push", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=HANG_GUARD, check=False
    )


def names(portal: Portal) -> list[str]:
    return [run["name"] for run in portal.get("/api/v1/runs?limit=1000").json["runs"]]


def test_a_run_waits_while_the_portal_is_away_and_goes_with_the_next_one(
    project: Project, portal: Portal
) -> None:
    project.set_thresholds()
    done = project.run(f"--mlms-push={AWAY}", "-k", "accuracy")
    done.assert_outcomes(passed=1)
    assert done.ret == 0
    note = f"mlms: not pushed: {AWAY}: Connection refused; 1 run waits for the next run, or for: mlms push --url {AWAY}"
    done.stdout.fnmatch_lines([note])
    first = project.results.resolve()
    done = project.run(f"--mlms-push={portal.url}", "-k", "accuracy", "--mlms-keep=1")
    assert "not pushed" not in done.stdout.str()
    second = project.results.resolve()
    assert {first.name, second.name} <= set(names(portal))
    assert "--mlms-push" in (second / "results.jsonl").read_text()
    for path in second.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes()
    run = portal.get(f"/api/v1/runs/{second.name}").json
    number = next(iter(run["numbers"].values()))
    predictions = f"/api/v1/runs/{second.name}/items/{number}/artifacts/predictions.csv"
    below = run["items"][0]["artifacts"]["predictions.csv"]
    assert portal.get(predictions).body == (second / below).read_bytes()
    assert mlms_push(project.path, f"--url={portal.url}").stdout == "no run of mlms-results waits\n"


WRONG = [
    (["--mlms-push=portal.example.org"], "is no address of a portal; write https://portal"),
    (["--mlms-push=https://me:secret@portal"], "leave the secret out; MLMS_PUSH_TOKEN has the"),
    (["--mlms-push=https://portal:80b"], "is no address of a portal; write https://portal"),
    (["--mlms-push=http://[::1"], "is no address of a portal; write https://portal"),
    (["--mlms-push=http://[::1]", "--mlms-push-token-file=nowhere"], "name the file of the token"),
]


@pytest.mark.parametrize(("arguments", "text"), WRONG)
def test_an_address_that_cannot_be_is_an_error_before_anything_is_measured(
    project: Project, arguments: list[str], text: str
) -> None:
    done = project.run(*arguments, "--collect-only")
    assert done.ret == 4
    assert text in done.stderr.str()
    assert "secret@" not in done.stderr.str()


def test_runs_that_wait_are_caught_up_with(tmp_path: Path, portal: Portal) -> None:
    results = tmp_path / "mlms-results"
    for number in (101, 102, 103):
        run = write_run(results, number)
        (run / ".unpushed").touch()
    away = mlms_push(tmp_path, f"--url={AWAY}")
    assert away.returncode == 1
    assert away.stderr.count("Connection refused") == 3
    done = mlms_push(tmp_path, f"--url={portal.url}")
    lines = [f"{run_name(number)}: new\n" for number in (101, 102, 103)]
    assert (done.returncode, done.stdout) == (0, "".join(lines))
    assert set(map(run_name, (101, 102, 103))) <= set(names(portal))
    assert mlms_push(tmp_path, f"--url={portal.url}").stdout == "no run of mlms-results waits\n"


def test_a_run_that_is_named_is_pushed_again_without_change(tmp_path: Path, portal: Portal) -> None:
    run = write_run(tmp_path, 104)
    states = [mlms_push(tmp_path, f"--url={portal.url}", str(run)).stdout for _ in range(2)]
    assert states == [f"{run.name}: new\n", f"{run.name}: unchanged\n"]


def test_a_wrong_token_is_said_once_and_the_run_waits(
    tmp_path: Path, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLMS_PUSH_TOKEN", "a-token-of-another-portal")
    run = write_run(tmp_path / "mlms-results", 105)
    (run / ".unpushed").touch()
    done = mlms_push(tmp_path, f"--url={portal.url}")
    assert done.returncode == 1
    assert "does not accept the token; set MLMS_PUSH_TOKEN or --mlms-push-token-file" in done.stderr
    assert "a-token-of" not in done.stderr
    assert (run / ".unpushed").exists()


def test_the_token_may_be_in_a_file(
    tmp_path: Path, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLMS_PUSH_TOKEN")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    run = write_run(tmp_path, 106)
    done = mlms_push(tmp_path, f"--url={portal.url}", f"--token-file={file}", str(run))
    assert done.stdout == f"{run.name}: new\n"


def test_a_run_that_no_portal_takes_does_not_wait(tmp_path: Path, portal: Portal) -> None:
    run = write_run(tmp_path / "first", 107)
    mlms_push(tmp_path, f"--url={portal.url}", str(run))
    other = write_run(tmp_path / "second", 107, ratio=2.0)
    done = mlms_push(tmp_path, f"--url={portal.url}", str(other))
    assert done.returncode == 1
    assert "the portal has another run of this name" in done.stderr


def test_what_is_no_run_or_no_portal_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = mlms_push(tmp_path, f"--url={AWAY}", "empty")
    assert (done.returncode, done.stderr) == (
        2,
        "mlms: empty: it has no results.jsonl; name the folder of a run\n",
    )
    done = mlms_push(tmp_path)
    assert done.returncode == 2
    assert "name the portal with --url or MLMS_PUSH" in done.stderr
