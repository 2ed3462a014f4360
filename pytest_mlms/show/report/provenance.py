"""The revision of the code that a run is of, and the job of the CI that it is in.

Nothing here fails a run: where git is missing, slow, or refuses a folder, there is no revision.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from pytest_mlms.core.text import encodable, redact
from pytest_mlms.keep.results.run_line import GitRecord, JobRecord

_SECONDS = 5  # for each command of git
_HARMLESS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Settings of a repository that have git run a program of the repository."""

_STATUS = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
_DETACHED = "HEAD"
_REPOSITORY = {
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_WORK_TREE",
}
_BRANCHES = (
    *("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BUILDKITE_BRANCH"),
    *("CHANGE_BRANCH", "BRANCH_NAME", "BUILD_SOURCEBRANCHNAME"),
)
"""Variables of CI services that name the branch: they check out a commit, which has none."""

_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT", "BUILD_SOURCEVERSION")
_SHA = re.compile(r"[0-9a-f]{40,64}")


def revision_of(folder: Path, env: Mapping[str, str] = os.environ) -> GitRecord | None:
    """Return the revision of the repository that a folder is in; None where nothing tells it.

    Each command of git has 5 seconds. The branch of a commit that a CI has checked out is that of
    the CI's variables. So is the commit where an image has no git, or git refuses a folder that
    another user owns, as in containers.
    """
    answer = _git(folder, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
    lines = (answer or "").splitlines()
    if len(lines) != 2:
        return _revision_of_job(env)
    sha, branch = lines
    changes = _git(folder, *_STATUS)
    dirty = None if changes is None else bool(changes)
    if branch == _DETACHED:
        return GitRecord(sha, dirty, _branch_of_job(env))
    return GitRecord(sha, dirty, encodable(branch))


_EVENTS = {
    "schedule": ("schedule",),
    "pull request": (
        *("pull_request", "pull_request_target", "merge_request_event", "pullrequest"),
        "external_pull_request_event",
    ),
    "push": ("push", "merge_group", "webhook", "individualci", "batchedci"),
    "by hand": ("workflow_dispatch", "web", "ui", "manual"),
}
"""The event that starts a job -> the words of CI services for it."""


def job_of(env: Mapping[str, str] = os.environ) -> JobRecord | None:
    """Return the job that the variables of a CI service tell; None outside of these services.

    Known are GitHub Actions, GitLab, Jenkins, Buildkite and Azure Pipelines.
    """
    if env.get("GITHUB_ACTIONS"):
        return JobRecord("GitHub Actions", _github_url(env), _event(env, "GITHUB_EVENT_NAME"))
    if env.get("GITLAB_CI"):
        url = _address(env.get("CI_JOB_URL"))
        return JobRecord("GitLab", url, _event(env, "CI_PIPELINE_SOURCE"))
    if env.get("BUILDKITE"):
        url = _address(env.get("BUILDKITE_BUILD_URL"))
        event = _event(env, "BUILDKITE_SOURCE", "BUILDKITE_PULL_REQUEST")
        return JobRecord("Buildkite", url, event)
    if env.get("TF_BUILD"):
        return JobRecord("Azure Pipelines", _azure_url(env), _event(env, "BUILD_REASON"))
    if env.get("JENKINS_URL"):
        return JobRecord("Jenkins", _address(env.get("BUILD_URL")), _event(env, "", "CHANGE_ID"))
    return None


def _event(env: Mapping[str, str], variable: str, number: str = "") -> str | None:
    """Return what started the job: a key of _EVENTS; None where the service doesn't tell.

    The variable ``number`` has the number of a pull request, if the job is of one.
    """
    if env.get(number, "").isdecimal():
        return "pull request"
    told = env.get(variable, "").lower()
    return next((event for event, words in _EVENTS.items() if told in words), None)


def _github_url(env: Mapping[str, str]) -> str | None:
    server = env.get("GITHUB_SERVER_URL")
    repository = env.get("GITHUB_REPOSITORY")
    run = env.get("GITHUB_RUN_ID", "")
    if not server or not repository or not run.isdecimal():
        return None
    return _address(f"{server}/{repository}/actions/runs/{run}")


def _azure_url(env: Mapping[str, str]) -> str | None:
    project = env.get("SYSTEM_TEAMPROJECT")
    build = env.get("BUILD_BUILDID", "")
    base = _address(env.get("SYSTEM_COLLECTIONURI"))
    if not base or not project or not build.isdecimal():
        return None
    return f"{base.rstrip('/')}/{quote(project)}/_build/results?buildId={build}"


def _address(url: str | None) -> str | None:
    """Return an address of the web without users, passwords and values; None for anything else."""
    if not url or not url.startswith(("http://", "https://")) or not url.isprintable():
        return None
    return redact(encodable(url))


def _revision_of_job(env: Mapping[str, str]) -> GitRecord | None:
    """Return the revision that a CI says it has checked out."""
    if job_of(env) is None:
        return None
    for name in _COMMITS:
        if _SHA.fullmatch(env.get(name, "")):
            return GitRecord(env[name], None, _branch_of_job(env))
    return None


def _branch_of_job(env: Mapping[str, str]) -> str | None:
    for name in _BRANCHES:
        if env.get(name):
            return encodable(env[name])
    return None


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a command of git; None where there is none."""
    command = ["git", *_HARMLESS, "--no-optional-locks", *arguments]
    # Hooks of git set variables of another repository.
    env = {name: value for name, value in os.environ.items() if name not in _REPOSITORY}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**env, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return done.stdout.decode(errors="replace")
