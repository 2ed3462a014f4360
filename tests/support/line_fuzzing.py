"""Mutated lines of results, answers of hosts and messages of workers, through their readers."""

from __future__ import annotations

import contextlib
import json
import random
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from pytest_mlms.bisect.judgement import judgement_of
from pytest_mlms.checked_lines import read_lines
from pytest_mlms.distribute.messages import FromWorker
from pytest_mlms.distribute.remote.install import _describe, _platforms
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver
from pytest_mlms.distribute.side_channel import SideChannel
from pytest_mlms.errors import MlmsError
from pytest_mlms.history.recorded_stack import RecordedStack
from pytest_mlms.history.run_content import gather
from pytest_mlms.history.run_lines import read_run as read_for_history
from pytest_mlms.items.resume import finished_items
from pytest_mlms.lockfile.from_results import items_of_run
from pytest_mlms.lockfile.lock import Lock
from pytest_mlms.lockfile.merging import renewed
from pytest_mlms.lockfile.writing import lock_text
from pytest_mlms.portal.run_reader import item_row, software_rows
from pytest_mlms.recorded import recorded_artifacts
from pytest_mlms.repro.expectation import expectation_of
from pytest_mlms.repro.items import find_item
from pytest_mlms.results_reader import read_results
from pytest_mlms.serialization import to_plain
from pytest_mlms.stacks.recreated import ExactSoftware, recreated_stack
from pytest_mlms.stacks.trust import Trust, trusted_keys
from pytest_mlms.upgrade.replay import read_upgrades, replay_upgrade
from pytest_mlms.views.run import read_run
from tests.support.mutants import changed_values, mutated_bytes

__all__ = [
    "bounded",
    "mutated_json",
    "mutated_lines",
    "read_answer",
    "read_messages",
    "read_mutated_lines",
]

_MEMORY = 300 << 20
"""Bytes that the readers of a small file may take beside what the process has."""


def mutated_lines(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return lines of which a few have other values; now and then one that is no JSON."""
    if rng.random() < 0.1:
        return mutated_bytes(data, seeds, rng)
    lines = data.splitlines()
    if not lines:
        return data
    chosen = rng.randrange(len(lines))
    value = json.loads(lines[chosen])
    changed_values(value, rng)
    lines[chosen] = json.dumps(value, default=str).encode()
    return b"\n".join(lines) + b"\n"


def mutated_json(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return JSON with other values; now and then damaged JSON."""
    if rng.random() < 0.2:
        return mutated_bytes(data, seeds, rng)
    value = json.loads(data)
    changed_values(value, rng)
    return json.dumps(value, default=str).encode()


def read_answer(data: bytes, folder: Path) -> None:
    """Take an answer of a host's Python, and name the wheels that it takes."""
    text = data.decode(errors="replace")
    host: Any = SimpleNamespace(host="h", python="python3", run_python=lambda code: text)
    with bounded():
        assert len(_platforms(_describe(host))) < 1000


def read_messages(data: bytes, folder: Path) -> None:
    """Receive messages of a worker, and take its files."""
    try:
        received = json.loads(data)
    except (ValueError, RecursionError):
        return
    channel = SideChannel(SimpleNamespace(send=lambda message: None, setcallback=_ignore))
    handlers: dict[type, Any] = dict.fromkeys(FromWorker.__args__, str)
    receiver = ResultReceiver(folder / "run", channel)
    problems: list[str] = []
    channel.listen({**handlers, **receiver.handlers}, (), problems.append)
    with bounded():
        for message in received if isinstance(received, list) else [received]:
            is_list = isinstance(message, list)
            channel._receive(tuple(message) if is_list else message)
    receiver.close()
    assert not (folder / "items").exists()


def _ignore(*arguments: Any, **options: Any) -> None:
    pass


def read_mutated_lines(data: bytes, folder: Path) -> None:
    """Read lines by each reader; an error of ours in one of them doesn't keep the others from it."""
    path = folder / "results.jsonl"
    path.write_bytes(data)
    errors = []
    with bounded():
        for read in _READERS:
            try:
                read(path)
            except MlmsError as error:
                errors.append(str(error))
    if errors:
        raise MlmsError("; ".join(errors))


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Bound the memory that is taken meanwhile."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    now = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (now + _MEMORY, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _report(path: Path) -> None:
    run = read_run(path.parent)
    json.dumps(to_plain(run)).encode()
    for item in run.items:
        assert item.title is not None
        assert item.explanation is not None
        for name in item.artifacts:
            item.artifact(name)


def _portal(path: Path) -> None:
    for line in read_results(path):
        if line.get("type") == "item":
            item_row(line)
            list(software_rows(line))


def _lock(path: Path) -> None:
    items = items_of_run(read_lines(path), path.parent)
    items.refused()
    lock_text(renewed(Lock(), items.written(force=True), ()))


def _repro(path: Path) -> None:
    for line in read_lines(path):
        if line.get("type") == "item":
            found = find_item(f"{path.parent}::{line['nodeid']}", path.parent)
            with contextlib.suppress(MlmsError):
                expectation_of(found.line)
            for file in recorded_artifacts(found.line).values():
                file.file_below(path.parent)
            _recreate(RecordedStack.of(found.line))


def _recreate(recorded: RecordedStack) -> None:
    assert recorded.identity is not None
    with contextlib.suppress(MlmsError):
        trusted_keys(recorded.declared, Trust(), recorded.name)
    exact = ExactSoftware(recorded.name, recorded.framework, recorded.python, recorded.packages)
    with contextlib.suppress(MlmsError):
        recreated_stack("again", exact, Trust())


def _resume(path: Path) -> None:
    finished_items(path.parent)


def _history(path: Path) -> None:
    with path.open("rb") as lines:
        gather(read_for_history(lines, str(path)))


def _judge(path: Path) -> None:
    folder, upgrades = read_upgrades(path)
    for upgrade in upgrades:
        replay_upgrade(folder, upgrade, None, None)


def _bisect(path: Path) -> None:
    for line in read_lines(path):
        if line.get("kind") == "upgrade":
            judgement_of(line, None)


_READERS: list[Callable[[Path], Any]] = [
    _report,
    _portal,
    _lock,
    _repro,
    _resume,
    _history,
    _judge,
    _bisect,
]
