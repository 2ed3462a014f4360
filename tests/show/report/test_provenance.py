"""Revisions of real repositories, also broken and slow ones, and jobs of CI services."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_mlms.keep.results.run_line import GitRecord, JobRecord
from pytest_mlms.show.report import results
from pytest_mlms.show.report.results import job_of, revision_of

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "me/models",
    "GITHUB_RUN_ID": "17",
}
AZURE = {
    "TF_BUILD": "True",
    "SYSTEM_COLLECTIONURI": "https://me:pat@dev.azure.com/us/",
    "SYSTEM_TEAMPROJECT": "my models",
    "BUILD_BUILDID": "17",
}


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit on the branch ``work``."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    git(tmp_path, "init", "-q", "-b", "work")
    (tmp_path / "manifest.yaml").write_text("a: 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "begin")
    return tmp_path


def test_a_revision_has_the_commit_and_the_branch(repository: Path) -> None:
    folder = repository / "below"
    folder.mkdir()
    sha = git(repository, "rev-parse", "HEAD")
    assert revision_of(folder) == GitRecord(sha, False, "work")


def test_changed_files_make_a_revision_dirty_and_new_ones_do_not(repository: Path) -> None:
    (repository / "results.jsonl").write_text("{}")
    revision = revision_of(repository)
    assert revision is not None
    assert not revision.dirty
    (repository / "manifest.yaml").write_text("a: 2\n")
    changed = revision_of(repository)
    assert changed is not None
    assert changed.dirty


def test_the_branch_of_a_commit_that_a_ci_checked_out_is_told_by_the_ci(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    sha = git(repository, "rev-parse", "HEAD")
    assert revision_of(repository, {}) == GitRecord(sha, False, None)
    named = {"GITHUB_REF_NAME": "17/merge", "GITHUB_HEAD_REF": "mine"}
    assert revision_of(repository, named) == GitRecord(sha, False, "mine")


def test_without_a_repository_a_commit_or_git_there_is_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert revision_of(tmp_path, {}) is None
    git(tmp_path, "init", "-q")
    assert revision_of(tmp_path, {}) is None
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert revision_of(tmp_path, {}) is None
    assert revision_of(tmp_path / "missing", {}) is None


def test_a_ci_tells_the_commit_where_an_image_has_no_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    env = {**GITHUB, "GITHUB_SHA": "ab" * 20, "GITHUB_REF_NAME": "main"}
    assert revision_of(tmp_path, env) == GitRecord("ab" * 20, None, "main")
    assert revision_of(tmp_path, {**env, "GITHUB_SHA": "$(id)"}) is None
    assert revision_of(tmp_path, {"GIT_COMMIT": "ab" * 20}) is None, "of no CI that is known"


def test_a_repository_that_is_broken_has_no_revision(repository: Path) -> None:
    (repository / ".git" / "HEAD").write_text("\0nonsense")
    assert revision_of(repository, {}) is None


def test_programs_that_a_repository_names_do_not_run(repository: Path) -> None:
    program = repository / "program"
    program.write_text(f"#!/bin/sh\ntouch {repository}/ran\n")
    program.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(program))
    assert revision_of(repository) is not None
    assert not (repository / "ran").exists()


def test_a_git_that_gives_no_answer_costs_its_time_limit_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(results, "_SECONDS", 0.2)
    assert revision_of(tmp_path, {}) is None


def test_a_hook_of_another_repository_does_not_change_the_revision(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    sha = git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert revision_of(repository) == GitRecord(sha, False, "work")


@pytest.mark.parametrize(
    ("env", "job"),
    [
        (GITHUB, JobRecord("GitHub Actions", "https://github.com/me/models/actions/runs/17")),
        ({**GITHUB, "GITHUB_RUN_ID": "x"}, JobRecord("GitHub Actions", None)),
        (
            {"GITLAB_CI": "true", "CI_JOB_URL": "https://me:token@gitlab.example/a/-/jobs/3"},
            JobRecord("GitLab", "https://***@gitlab.example/a/-/jobs/3"),
        ),
        (
            {"BUILDKITE": "true", "BUILDKITE_BUILD_URL": "https://buildkite.com/a/b/builds/4"},
            JobRecord("Buildkite", "https://buildkite.com/a/b/builds/4"),
        ),
        (
            AZURE,
            JobRecord(
                "Azure Pipelines",
                "https://***@dev.azure.com/us/my%20models/_build/results?buildId=17",
            ),
        ),
        (
            {"JENKINS_URL": "https://ci.example/", "BUILD_URL": "https://ci.example/job/a/5/"},
            JobRecord("Jenkins", "https://ci.example/job/a/5/"),
        ),
        ({"JENKINS_URL": "x", "BUILD_URL": "javascript:alert(1)"}, JobRecord("Jenkins", None)),
        ({"JENKINS_URL": "x", "BUILD_URL": "https://a/\x1b[31m"}, JobRecord("Jenkins", None)),
        ({"PATH": "/bin"}, None),
    ],
)
def test_the_job_of_a_ci_has_the_address_of_its_page_and_no_secret(
    env: dict[str, str], job: JobRecord | None
) -> None:
    assert job_of(env) == job


@pytest.mark.parametrize(
    ("env", "event"),
    [
        ({**GITHUB, "GITHUB_EVENT_NAME": "schedule"}, "schedule"),
        ({**GITHUB, "GITHUB_EVENT_NAME": "pull_request"}, "pull request"),
        ({**GITHUB, "GITHUB_EVENT_NAME": "workflow_dispatch"}, "by hand"),
        ({**GITHUB, "GITHUB_EVENT_NAME": "release"}, None),
        ({"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "merge_request_event"}, "pull request"),
        ({"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "web"}, "by hand"),
        ({**AZURE, "BUILD_REASON": "BatchedCI"}, "push"),
        ({**AZURE, "BUILD_REASON": "Schedule"}, "schedule"),
        (
            {"BUILDKITE": "true", "BUILDKITE_SOURCE": "webhook", "BUILDKITE_PULL_REQUEST": "false"},
            "push",
        ),
        (
            {"BUILDKITE": "true", "BUILDKITE_SOURCE": "webhook", "BUILDKITE_PULL_REQUEST": "7"},
            "pull request",
        ),
        ({"JENKINS_URL": "x", "CHANGE_ID": "7"}, "pull request"),
        ({"JENKINS_URL": "x"}, None),
    ],
)
def test_a_job_tells_what_started_it(env: dict[str, str], event: str | None) -> None:
    job = job_of(env)
    assert job is not None
    assert job.event == event
