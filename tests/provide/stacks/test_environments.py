"""Environments made by real venv and pip, from wheels that the tests write themselves.

No network is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import psutil
import pytest

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.environments import (
    _FACTS,
    Environment,
    _problem,
    clear_strays,
    environments,
    existing,
    provide,
    remove,
)
from pytest_mlms.provide.stacks.interpreters import Interpreter, probe
from tests.support.small_disk import mount_small_disk
from tests.support.waiting import wait_until
from tests.support.wheels import offline, share_seeds, write_wheel  # noqa: F401

pytestmark = pytest.mark.usefixtures("offline")

HANG_GUARD = 600.0  # seconds


@pytest.fixture(scope="module")
def python() -> Interpreter:
    return probe(sys.executable)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_wheel(tmp_path / "wheels", "tiny", "1.0")


def stack_of(*requirements: str, **fields: Any) -> Stack:
    return Stack("mine", "any", requirements=requirements, **fields)


def show_nothing(step: str) -> None:
    pass


class Cache:
    """A cache of environments of one interpreter."""

    def __init__(self, path: Path, python: Interpreter) -> None:
        self.path = path
        self._python = python

    def provide(self, stack: Stack) -> Environment:
        return provide(stack, self._python, self.path, show_nothing)

    def existing(self, stack: Stack) -> Environment | None:
        return existing(stack, self._python, self.path)

    def environments(self) -> list[Environment]:
        return list(environments(self.path))

    def folders(self) -> set[str]:
        """Return the names of the environments, complete or not."""
        names = set()
        for path in (self.path / "stacks").iterdir():
            if path.is_dir():
                names.add(path.name)
        return names - {"seeds"}


@pytest.fixture
def cache(tmp_path: Path, python: Interpreter, seeds: Path) -> Cache:
    return cache_in(tmp_path / "cache", python, seeds)


def cache_in(folder: Path, python: Interpreter, seeds: Path) -> Cache:
    share_seeds(folder, seeds)
    return Cache(folder, python)


def run(interpreter: Path, code: str) -> str:
    command = [str(interpreter), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def version_in(made: Environment) -> str:
    return run(made.interpreter, "import tiny; print(tiny.VERSION)")


def test_an_environment_has_its_requirements_and_their_exact_versions(
    wheel: Path, python: Interpreter, cache: Cache
) -> None:
    option = "--extra-index-url=https://ci:hidden-word@mirror.invalid/simple"
    made = cache.provide(stack_of("tiny>=0.5", options=(option,)))
    assert "hidden-word" not in (made.folder / _FACTS).read_text()  # other users read it
    assert version_in(made) == "1.0"
    assert "tiny==1.0" in made.lock
    assert made.python == python.version


@pytest.mark.slow
def test_the_scripts_of_an_environment_run_its_interpreter(wheel: Path, cache: Cache) -> None:
    made = cache.provide(stack_of("tiny"))
    script = made.folder / "bin" / "tiny-says"
    done = subprocess.run([script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(made.interpreter)


@pytest.mark.slow
def test_an_environment_is_made_once_and_found_again(
    wheel: Path, python: Interpreter, cache: Cache
) -> None:
    stack = stack_of("tiny")
    assert cache.existing(stack) is None
    made = cache.provide(stack)
    before = wheel.stat()
    wheel.write_bytes(bytes(before.st_size))  # pip could not install it again
    os.utime(wheel, ns=(before.st_atime_ns, before.st_mtime_ns))
    steps: list[str] = []
    assert provide(stack, python, cache.path, steps.append) == made
    assert steps == []
    assert cache.existing(stack) == made
    assert cache.environments() == [made]


@pytest.mark.slow
def test_each_requirement_option_and_wheel_makes_an_environment_of_its_own(
    wheel: Path, cache: Cache
) -> None:
    stacks = [
        stack_of("tiny"),
        stack_of("tiny==1.0"),
        stack_of("tiny", options=("--no-deps",)),
        stack_of(str(wheel)),
    ]
    folders = {cache.provide(stack).folder for stack in stacks}
    assert len(folders) == 4


@pytest.mark.slow
def test_a_wheel_with_another_content_makes_another_environment(
    wheel: Path, cache: Cache, tmp_path: Path
) -> None:
    stack = stack_of(str(wheel))
    before = cache.provide(stack)
    write_wheel(tmp_path / "wheels", "tiny", "1.0", code="CHANGED = True\n")
    after = cache.provide(stack)
    assert after.folder != before.folder
    assert run(after.interpreter, "import tiny; print(tiny.CHANGED)") == "True"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requirement", "missing"),
    [
        ("tiny==2.0", "tiny==2.0"),
        ("no-such", "no-such"),
        ("other", "tiny==9"),
        ("foreign", "foreign"),
    ],
    ids=["unknown version", "unknown name", "dependency", "other platform"],
)
def test_a_failed_installation_has_pip_s_last_lines_and_leaves_nothing(
    wheel: Path,
    python: Interpreter,
    cache: Cache,
    tmp_path: Path,
    requirement: str,
    missing: str,
) -> None:
    write_wheel(tmp_path / "wheels", "other", "1", needs="tiny==9")
    foreign = write_wheel(tmp_path / "wheels", "foreign", "1")
    foreign.rename(foreign.with_name("foreign-1-cp27-cp27m-win32.whl"))
    with pytest.raises(StackError) as raised:
        cache.provide(stack_of(requirement))
    first, second, *_ = str(raised.value).splitlines()
    assert first == f"stack mine can't be made with Python {python.version}"
    assert second == "  installing ended with status 1:"
    assert f"No matching distribution found for {missing}" in str(raised.value)
    assert cache.folders() == set()


@pytest.mark.slow
def test_a_failed_installation_is_not_tried_again_in_the_same_process(
    python: Interpreter, cache: Cache
) -> None:
    steps: list[str] = []
    errors = set()
    for _ in range(2):
        with pytest.raises(StackError) as raised:
            provide(stack_of("no-such"), python, cache.path, steps.append)
        errors.add(str(raised.value))
    assert len(errors) == 1
    assert steps.count("installing") == 1


@pytest.mark.slow
def test_requirements_that_conflict_are_an_error(wheel: Path, cache: Cache, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "tiny", "2.0")
    write_wheel(tmp_path / "wheels", "other", "1", needs="tiny<2")
    with pytest.raises(StackError, match="conflict"):
        cache.provide(stack_of("other", "tiny>=2"))
    assert cache.folders() == set()


@pytest.mark.slow
def test_a_lock_file_decides_the_packages(wheel: Path, cache: Cache, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "tiny", "2.0")
    lock = tmp_path / "mine.lock"
    stack = stack_of("tiny", lock=lock)
    lock.write_text("# made by hand\ntiny==1.0\n\n")
    assert "tiny==1.0" in cache.provide(stack).lock
    lock.write_text("tiny==2.0\n")
    assert "tiny==2.0" in cache.provide(stack).lock


@pytest.mark.parametrize("text", ["", "other==1\n", "tiny==0.9\n"])
def test_a_lock_file_that_does_not_meet_the_requirements_is_an_error(
    cache: Cache, tmp_path: Path, text: str
) -> None:
    lock = tmp_path / "mine.lock"
    lock.write_text(text)
    message = r"mine\.lock has nothing that is tiny>=1; 'mlms stack lock mine' writes it anew"
    with pytest.raises(StackError, match=message):
        cache.existing(stack_of("tiny>=1", lock=lock))


@pytest.mark.parametrize(
    ("requirement", "package"),
    [
        ("tiny>=1", "Tiny==1.5"),
        ("tiny", "tiny @ file:///tiny.whl"),
        ("tiny>=2a1", "tiny==2.0b1"),
        ("tiny>=9; python_version < '3'", "other==1"),
        ("tiny-1.0-py3-none-any.whl", "other==1"),
    ],
    ids=["version", "address", "prerelease", "marker", "wheel"],
)
def test_a_lock_file_that_meets_the_requirements_is_read(
    cache: Cache, tmp_path: Path, requirement: str, package: str
) -> None:
    lock = tmp_path / "mine.lock"
    lock.write_text(f"{package}\n")
    assert cache.existing(stack_of(requirement, lock=lock)) is None


def test_a_lock_file_that_is_not_there_is_an_error(cache: Cache, tmp_path: Path) -> None:
    lock = tmp_path / "none.lock"
    message = r"none\.lock can't be read: No such file .*'mlms stack lock mine' writes it"
    with pytest.raises(StackError, match=message):
        cache.provide(stack_of("tiny", lock=lock))


MAKE = """
import sys, time
from pathlib import Path
from pytest_mlms.provide.stacks.environments import provide
from pytest_mlms.provide.stacks.interpreters import probe
from pytest_mlms.core.records import Stack

def show(step):
    print("step", step, flush=True)
    if step.startswith("Installing") and "stay" in sys.argv:
        time.sleep(600)  # while pip goes on

stack = Stack("mine", "any", requirements=("tiny",))
made = provide(stack, probe(sys.executable), Path(sys.argv[1]), show)
print("made", made.folder, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def maker(cache: Cache, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that makes an environment and uses it until its input ends."""
    command = [sys.executable, "-c", MAKE, str(cache.path), *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        yield process
        process.communicate(timeout=HANG_GUARD)


def wait_for(process: subprocess.Popen[str], start: str) -> None:
    """Read a process's output until a line that starts so."""
    assert process.stdout
    assert any(line.startswith(start) for line in process.stdout)


@pytest.mark.slow
def test_processes_that_want_one_stack_make_it_once(wheel: Path, cache: Cache) -> None:
    outputs = []
    with maker(cache) as first, maker(cache) as second, maker(cache) as third:
        for process in (first, second, third):
            output, _ = process.communicate(timeout=HANG_GUARD)
            outputs.append(output)
    steps = sorted(output.count("step Installing") for output in outputs)
    assert steps[:2] == [0, 0]
    assert steps[2] > 0
    assert len(cache.folders()) == 1


def programs_in(cache: Cache) -> list[list[str]]:
    """Return the commands of processes that name the cache, but for those that make a stack."""
    found = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [words for words in found if str(cache.path) in " ".join(words) and "-c" not in words]


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name
)
def test_a_process_that_ends_while_it_installs_leaves_no_environment(
    wheel: Path, cache: Cache, how: signal.Signals
) -> None:
    with maker(cache, "stay") as process:
        wait_for(process, "step Installing")
        process.send_signal(how)
    assert cache.environments() == []
    if how == signal.SIGINT:
        assert cache.folders() == set()
    wait_until(lambda: not programs_in(cache))
    made = cache.provide(stack_of("tiny"))
    assert version_in(made) == "1.0"
    assert cache.environments() == [made]


@pytest.mark.slow
def test_an_environment_is_not_removed_while_a_process_uses_it(wheel: Path, cache: Cache) -> None:
    with maker(cache) as process:
        wait_for(process, "made")
        (made,) = cache.environments()
        message = "stack mine is in use by a process; wait for it, or end it"
        with pytest.raises(StackError, match=message):
            remove(made)
        assert made.interpreter.exists()
    remove(made)
    assert cache.environments() == []
    assert cache.folders() == set()


def test_an_environment_that_the_system_does_not_release_is_an_error_with_its_path(
    cache: Cache,
) -> None:
    folder = cache.path / "stacks" / "aa"
    made = Environment(folder, "mine", "3.11.2", "linux", ("tiny",), ("tiny==1.0",))
    made.folder.mkdir(parents=True)
    made.use_file.mkdir()  # root, too, can't open it as a file
    message = r"stack mine can't be removed: Is a directory \(.*/stacks/aa\.use\); grant"
    with pytest.raises(StackError, match=message):
        remove(made)
    assert made.folder.exists()


@pytest.mark.slow
def test_an_environment_that_was_removed_by_hand_is_made_again(wheel: Path, cache: Cache) -> None:
    stack = stack_of("tiny")
    made = cache.provide(stack)
    shutil.rmtree(made.folder)
    made.use_file.unlink()
    assert cache.existing(stack) is None
    assert cache.provide(stack) == made
    assert made.interpreter.exists()
    assert made.use_file.exists()


@pytest.mark.slow
def test_an_environment_whose_base_interpreter_was_removed_is_made_again(
    wheel: Path, cache: Cache
) -> None:
    stack = stack_of("tiny")
    made = cache.provide(stack)
    made.interpreter.unlink()
    made.interpreter.symlink_to("/nowhere/python")
    assert cache.existing(stack) is None
    assert cache.provide(stack) == made
    assert version_in(made) == "1.0"


@pytest.mark.slow
def test_an_environment_of_another_version_of_the_plugin_is_made_again(
    wheel: Path, cache: Cache
) -> None:
    stack = stack_of("tiny")
    made = cache.provide(stack)
    facts = made.folder / _FACTS
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "later": 1}))
    assert cache.environments() == []
    assert cache.provide(stack) == made
    assert cache.environments() == [made]


def test_a_cache_that_can_not_be_written_is_an_error(python: Interpreter, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    message = "stack mine: Not a directory .*name another cache with --mlms-cache"
    with pytest.raises(StackError, match=message):
        provide(stack_of("tiny"), python, file, show_nothing)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["8m", "40m", "64m"])
def test_a_full_disk_is_an_error_with_its_folder_and_advice_and_leaves_nothing(
    size: str, wheel: Path, python: Interpreter, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "tiny", "1.0", size=64 << 20)
    with mount_small_disk(tmp_path / "disk", size=size) as disk:
        cache = Cache(disk, python)
        advice = "make room( or grant access)?, or name another cache with --mlms-cache"
        with pytest.raises(StackError, match=advice) as raised:
            cache.provide(stack_of("tiny"))
        first, *_ = str(raised.value).splitlines()
        assert re.search(rf"no space left (in|on device \() ?{disk}", first, re.IGNORECASE)
        assert cache.folders() == set()


def test_a_tree_that_a_full_disk_does_not_take_is_told_without_its_files(tmp_path: Path) -> None:
    reason = "[Errno 28] No space left on device: 'b'"
    error = shutil.Error([("a", "b", "[Errno 13] Permission denied: 'a'"), ("a", "b", reason)])
    assert _problem(error, tmp_path) == f"No space left on device ({tmp_path})"
    denied = shutil.Error([("a", "b", "[Errno 13] Permission denied: 'a'")])
    assert _problem(denied, tmp_path) == "[Errno 13] Permission denied: 'a'"


@pytest.mark.slow
def test_uv_makes_the_same_environment(
    wheel: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv isn't installed here")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheel.parent))
    made = cache.provide(stack_of("tiny", installer="uv"))
    assert made.lock == ("tiny==1.0",)
    assert version_in(made) == "1.0"


def test_only_installations_that_were_killed_are_cleared(cache: Cache) -> None:
    folder = cache.path / "stacks"
    for name in ("aa-1.new", "bb-2.new"):
        (folder / name / "lib").mkdir(parents=True)
    with filelock.FileLock(folder / "bb.lock"):
        clear_strays(cache.path)
    assert cache.folders() == {"bb-2.new"}


@pytest.mark.slow
def test_a_relative_path_of_the_cache_is_the_same_cache(
    wheel: Path, python: Interpreter, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cache.path.parent)
    stack = stack_of("tiny")
    made = provide(stack, python, Path(cache.path.name), show_nothing)
    assert made.interpreter.is_absolute()
    assert cache.existing(stack) == made
