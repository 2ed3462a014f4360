"""View of a run: its folder's results.jsonl as records."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.serialization import from_plain, lines_from
from pytest_mlms.keep.results.item_line import check_head, item_of
from pytest_mlms.keep.results.results_reader import ItemLines
from pytest_mlms.keep.results.run_line import GitRecord, Session
from pytest_mlms.show.pages.item import ItemView


@dataclass(frozen=True)
class RunView:
    """A run: how it was started and ended, and its items in the order in which they finished.

    ``exit_status`` is pytest's, None for a run that was killed or goes on. ``sessions`` is more
    than 1 for a run that was resumed. ``time`` and ``ended`` are ISO 8601, UTC; ``seconds`` is the
    time of all sessions, None where clocks don't tell it. ``started_by`` is what started the first
    one, and ``job`` the address of the last one's job. ``numbers`` has the places of the items'
    lines in the file, from 0, by node id. ``left_out`` counts the lines that can't be read: they
    are too long, or no lines of results.
    """

    name: str
    folder: Path
    items: tuple[ItemView, ...] = ()
    time: str = ""
    ended: str = ""
    command: tuple[str, ...] = ()
    python: str = ""
    plugin: str = ""
    exit_status: int | None = None
    sessions: int = 1
    git: GitRecord | None = None
    seconds: float | None = None
    started_by: str = ""
    job: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0

    @property
    def worst_first(self) -> Sequence[ItemView]:
        """The items, those with the worst verdict and margin first."""
        return sorted(self.items, key=lambda item: item.badness)

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """The number of items by verdict, worst first, without zeros."""
        counts = Counter(item.verdict for item in self.items)
        return {verdict: counts[verdict] for verdict in Verdict if counts[verdict]}

    @property
    def git_text(self) -> str:
        """The commit in a line; "" where it is not known."""
        if self.git is None or not self.git.sha:
            return ""
        branch = f" on {self.git.branch}" if self.git.branch else ""
        dirty = ", with changes that were not committed" if self.git.dirty else ""
        return f"{self.git.sha[:12]}{branch}{dirty}"

    @property
    def models(self) -> Sequence[str]:
        """The names of the models, in the order of the items."""
        return list(dict.fromkeys(item.manifest.name for item in self.items))

    @property
    def headline(self) -> str:
        """The run in a line: its models, and how many items failed."""
        models = self.models
        names = ", ".join(models[:3]) or self.name
        if len(models) > 3:
            names = f"{len(models):,} models"
        bad = sum(item.is_bad for item in self.items)
        count = len(self.items)
        if bad:
            return f"{names}: {bad:,} of {count:,} failed"
        undecided = self.counts.get(Verdict.INCONCLUSIVE, 0)
        if undecided:
            return f"{names}: {undecided:,} of {count:,} undecided{self.but}"
        if [*self.counts] == [Verdict.SKIPPED]:
            return f"{names}: {count:,} of {count:,} skipped{self.but}"
        noun = "item" if count == 1 else "items"
        return f"{names}: {count:,} {noun}, none failed{self.but}"

    @property
    def but(self) -> str:
        """The reason why more may have failed than the items tell; "" for none."""
        if self.left_out:
            noun = "line" if self.left_out == 1 else "lines"
            return f", but {self.left_out:,} {noun} can't be read"
        if self.exit_status is None:
            return ", but it has not ended"
        return f", but it ended with status {self.exit_status}" if self.exit_status else ""

    @property
    def command_text(self) -> str:
        """The command that began the run, as it is typed; pytest's module is "pytest"."""
        words = list(self.command)
        if words and words[0].endswith(("pytest/__main__.py", "/pytest")):
            words[0] = "pytest"
        return shlex.join(words)

    @property
    def stacks(self) -> Sequence[str]:
        """The stacks that were measured, each with its versions in a line."""
        measured = [item.software for item in self.items if item.versions]
        return list(dict.fromkeys(measured))

    @property
    def machines(self) -> Sequence[str]:
        """The machines that items ran on, each in a line."""
        return list(dict.fromkeys(item.machine.text for item in self.items if item.machine.text))


@dataclass
class Elapsed:
    """The time of a run's sessions, by its lines; ``before`` is that of earlier ones."""

    before: float | None = 0.0
    began: str = ""
    last: str = ""

    def take(self, line: Mapping[str, Any]) -> None:
        """Add a line."""
        time = _text(line, "time")
        if line.get("type") == "run" or not self.began:
            self.before = self.seconds if self.began else 0.0
            self.began = (_text(line, "began") if line.get("type") == "run" else "") or time
        self.last = time or self.last

    @property
    def seconds(self) -> float | None:
        """The time of all sessions; None where a clock was set back, or a time is damaged."""
        try:
            passed = datetime.fromisoformat(self.last) - datetime.fromisoformat(self.began)
        except (TypeError, ValueError):  # one without a time zone can't be compared
            return None
        known = self.before is not None and passed.total_seconds() >= 0
        return (self.before or 0.0) + passed.total_seconds() if known else None


def started_by(line: Mapping[str, Any]) -> str:
    """Return what started the session of a line: "schedule", "pull request", "local", …

    A job of CI whose service doesn't tell is called by the service; "" for lines of older versions.
    """
    job = line.get("ci", "")
    if job is None:
        return "local"
    return (_text(job, "event") or _text(job, "service")) if isinstance(job, dict) else ""


def _text(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    return value if isinstance(value, str) else ""


@dataclass
class _Sessions:
    """The facts of the run itself that the lines read so far tell."""

    last: Session = field(default_factory=Session)
    run: str = ""
    exit_status: int | None = None
    count: int = 0
    first_time: str = ""
    elapsed: Elapsed = field(default_factory=Elapsed)
    started_by: str = ""

    def take(self, line: Mapping[str, Any]) -> None:
        """Add what a line tells."""
        self.elapsed.take(line)
        began = _text(line, "began") if line.get("type") == "run" else ""  # old lines have none
        self.first_time = self.first_time or began or _text(line, "time")
        if not self.run or line.get("type") == "run":
            self.run = str(line.get("run") or "")
        status = line.get("exit_status") if line.get("type") == "end" else None
        self.exit_status = status if isinstance(status, int) else None
        if line.get("type") == "run":
            self.count += 1
            self.last = from_plain(Session, line)
            self.started_by = self.started_by or started_by(line)


def read_run(folder: Path, longest_line: int = 1 << 60) -> RunView:
    """Return the run of a folder, or of its results.jsonl, from that file alone.

    A line that is cut off at the end was being written when the run was killed, and doesn't count.
    Raises MlmsError where there is no results.jsonl, or where a line of it is of no item.
    """
    path = folder if folder.name == "results.jsonl" else folder / "results.jsonl"
    sessions = _Sessions()
    items = ItemLines()
    left_out = 0
    with _opened(path) as file:
        for number, line in enumerate(lines_from(file, longest=longest_line)):
            left_out += line.content is None
            if line.content is not None:
                check_head(line.content, path, number + 1)
                sessions.take(line.content)
                items.take(number, line.content)
    if not sessions.count and not items.lines:
        raise MlmsError(f"{path}: it has no line of a run; name the folder of a run")
    numbered = [(line, items.numbers[name] + 1) for name, line in items.lines.items()]
    url = (sessions.last.ci and sessions.last.ci.url) or ""
    views = [item_of(ItemView, line, path, number) for line, number in numbered]
    return RunView(
        name=sessions.run or path.parent.resolve().name,
        folder=path.parent,
        items=tuple(views),
        time=sessions.first_time,
        ended=sessions.elapsed.last,
        command=sessions.last.command,
        python=sessions.last.python,
        plugin=sessions.last.plugin,
        exit_status=sessions.exit_status,
        sessions=max(sessions.count, 1),
        git=sessions.last.git,
        seconds=sessions.elapsed.seconds,
        started_by=sessions.started_by,
        job=url if url.startswith(("https://", "http://")) else "",
        numbers=items.numbers,
        left_out=left_out,
    )


def _opened(path: Path) -> IO[bytes]:
    """Open a results file; raises MlmsError."""
    try:
        return path.open("rb")
    except OSError as error:
        advice = "name the folder of a run, such as mlms-results/latest"
        raise MlmsError(f"{path}: {error.strerror}; {advice}") from None


def items_of(lines: Iterable[Mapping[str, Any]], folder: Path) -> list[ItemView]:
    """Return the items of lines that are in memory; raises MlmsError as ``item_of`` does."""
    path = folder / "results.jsonl"
    return [item_of(ItemView, line, path, number) for number, line in enumerate(lines, 1)]
