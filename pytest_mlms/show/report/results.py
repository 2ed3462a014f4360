"""The results file of a run: JSON lines, written as the items finish, below a line of the run.

docs/results.md describes the lines; ``pytest_mlms.keep.results.item_result`` makes those of items.
A line that can't be written, as on a full disk, is held and tried again with the next one. What is
still held at the end is handed out, so that nothing that was measured is lost. A kill costs the
line that is being written, and a loss of power those of the last second.

The line of the run tells the revision of the code, and the job of the CI. Where git is missing,
slow, or refuses a folder, there is no revision: nothing of it fails a run."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest_mlms
from pytest_mlms.core.serialization import read_line, to_plain
from pytest_mlms.core.text import encodable, redact, redact_all
from pytest_mlms.keep.results.run_line import FORMAT, GitRecord, JobRecord, Session
from pytest_mlms.show.report.run_folders import RUN_NAME, RunLock

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


_OUR_FILES = re.compile(rf"{RUN_NAME}|\.stacks|\.?latest.*|\.removed-.*|\.?history.*|\.portal")


_SYNC_SECONDS = 1.0  # between two times that the disk is waited for


class _Tail(NamedTuple):
    """The lines that are not written yet, and where in the file they begin.

    ``last`` has the fields of the line that came last, and ``items`` counts the lines of items. All
    of it is replaced in one step, so that Ctrl-C at any time neither loses nor repeats a line.
    """

    position: int
    lines: tuple[str, ...] = ()
    last: Mapping[str, Any] | None = None
    items: int = 0


class ResultsFile:
    """Appends lines to results.jsonl in a run's folder, which is made for the first one.

    ``root`` is the folder whose revision the run is of; without one, none is told. ``began`` is
    the time since the epoch when the session did, in s, else now. ``error`` is why lines can't be
    written at the moment, or empty.
    """

    def __init__(self, folder: Path, root: Path | None = None, began: float | None = None) -> None:
        self.path = folder / "results.jsonl"
        self._root = root
        self._began = _utc(time.time() if began is None else began)
        self.error = ""
        self._tail = _Tail(0)
        self._synced = -_SYNC_SECONDS
        self._lock = RunLock(folder)

    @property
    def unwritten(self) -> Sequence[str]:
        """The lines that can't be written at the moment."""
        return self._tail.lines

    @property
    def items(self) -> int:
        """The number of items that have a line."""
        return self._tail.items

    def has(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the line that came last is that of these fields."""
        return self._tail.last is fields

    def resume(self) -> None:
        """Take the run, and cut off the line that was being written when it was killed.

        Raises RunInUse where another session has the run, and OSError.
        """
        self._lock.acquire()
        with self.path.open("rb+") as file:
            content = file.read()
            _, _, last = content.rpartition(b"\n")
            if read_line(last) is None:
                file.truncate(len(content) - len(last))
            else:  # only its end is missing
                file.write(b"\n")
            self._tail = _Tail(file.seek(0, os.SEEK_END))

    def close(self) -> None:
        """Let other sessions have the run."""
        self._lock.release()

    def append(self, item: Mapping[str, Any]) -> None:
        """Write an item's line; before the first one, the line of the run."""
        if self.items == 0:
            session = Session(
                began=self._began,
                command=tuple(redact_all(sys.argv)),
                python=sys.version,
                plugin=pytest_mlms.__version__,
                git=revision_of(self._root) if self._root else None,
                ci=job_of(),
            )
            self.note("run", to_plain(session))
        self.note("item", item)

    def note(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write a line of this type."""
        line = self._encode(kind, fields)
        tail = self._tail
        items = tail.items + 1 if kind == "item" else tail.items
        self._tail = _Tail(tail.position, (*tail.lines, line), fields, items)
        self._flush()

    def finish(self, exit_status: int) -> None:
        """Write the last line, which a run that was killed does not have.

        Where the disk refuses it the run has failed, and the line that is handed out says so.
        """
        if self.items == 0:
            return
        self._synced = -_SYNC_SECONDS
        self.note("end", self._end(exit_status))
        if self.error:
            last = self._encode("end", self._end(exit_status or 1))
            self._tail = self._tail._replace(lines=(*self.unwritten[:-1], last))

    def _end(self, exit_status: int) -> dict[str, int]:
        return {"exit_status": exit_status, "items": self.items}

    def _encode(self, kind: str, fields: Mapping[str, Any]) -> str:
        line = {
            "format": FORMAT,
            "run": self.path.parent.name,
            "time": _utc(time.time()),
            "type": kind,
            **fields,
        }
        return json.dumps(line, allow_nan=False)

    def _flush(self) -> None:
        """Write the lines that are held."""
        text = "".join(f"{line}\n" for line in self.unwritten)
        try:
            if not self.path.exists():
                _make_run_folder(self.path.parent)
                self._lock.acquire()
            end = self._write(text.encode())
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"
        else:
            self._tail = self._tail._replace(position=end, lines=())
            self.error = ""

    def _write(self, data: bytes) -> int:
        """Write the lines whole, or nothing of them; return the end of the file.

        Raises OSError. After an OSError or Ctrl-C, the next call has the same lines and more; what
        is there of them is not written again.
        """
        with _open_to_append(self.path) as descriptor:
            end = os.lseek(descriptor, 0, os.SEEK_END)
            written = os.pread(descriptor, len(data), self._tail.position)
            if not data.startswith(written):  # other lines, by whoever does not see our lock
                written = b""
            _append(descriptor, data[len(written) :], end)
            now = time.monotonic()
            if now - self._synced >= _SYNC_SECONDS:
                os.fsync(descriptor)
                self._synced = now
            return os.lseek(descriptor, 0, os.SEEK_END)


@contextlib.contextmanager
def _open_to_append(path: Path) -> Iterator[int]:
    """Yield a descriptor of the file, which is made if need be; raises OSError, also at its end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, data: bytes, end: int) -> None:
    """Append all of ``data``, or nothing where the disk takes only a part; raises OSError."""
    if os.write(descriptor, data) != len(data):
        os.ftruncate(descriptor, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _utc(seconds: float) -> str:
    """Return a time since the epoch as lines have it: ISO 8601, UTC."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds")


def _make_run_folder(folder: Path) -> None:
    """Make the folder, keep it out of git, and have the link ``latest`` point to it."""
    folder.mkdir(parents=True, exist_ok=True)
    _ignore_in_git(folder.parent)
    link = folder.parent / f".latest-{folder.name}"
    with contextlib.suppress(OSError):  # some file systems have no links
        link.symlink_to(folder.name)
        os.replace(link, folder.parent / "latest")


def _ignore_in_git(results: Path) -> None:
    """Keep results out of git, unless their folder has other files that may be wanted there."""
    ignore = results / ".gitignore"
    if ignore.exists():
        return
    names = [path.name for path in results.iterdir()]
    if all(_OUR_FILES.fullmatch(name) for name in names):
        ignore.write_text("*\n")
