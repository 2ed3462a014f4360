"""Environments made by real venv and pip, from wheels that the tests write themselves.

No network.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import pytest

from pytest_mlms.errors import StackError
from pytest_mlms.records import Stack
from pytest_mlms.stacks.environments import (
    Environment,
    clear_strays,
    environments,
    existing,
    provide,
    remove,
)
from pytest_mlms.stacks.interpreters import Interpreter, probe
from tests.support.wheels import offline, write_wheel  # noqa: F401

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture(scope="module")
def python() -> Interpreter:
    return probe(sys.executable)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def stack(*requirements: str, **facts: Any) -> Stack:
    return Stack("mine", "any", requirements=requirements, **facts)


def quiet(text: str) -> None:
    pass


def folders(cache: Path) -> set[str]:
    """The environments, whole or half, that are there."""
    return {
        path.name
        for path in (cache / "stacks").iterdir()
        if path.is_dir() and path.name != "requests"
    }


def run(interpreter: Path, code: str) -> str:
    return subprocess.run(
        [interpreter, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_wheel(tmp_path / "wheels", "tiny", "1.0")


def test_an_environment_has_what_is_required_and_knows_the_exact_versions(
    wheel: Path, python: Interpreter, cache: Path
) -> None:
    steps: list[str] = []
    made = provide(stack("tiny>=0.5"), python, cache, steps.append)
    assert run(made.interpreter, "import tiny; print(tiny.VERSION)") == "1.0"
    assert "tiny==1.0" in made.lock
    assert made.python == python.version
    assert steps[0] == "making the environment"
    assert any(step.startswith("Installing") for step in steps)
    assert steps[-1] == ""
    script = subprocess.run(
        [made.folder / "bin" / "tiny-says"], capture_output=True, text=True, check=True
    )
    assert script.stdout.strip() == str(made.interpreter)


@pytest.mark.slow
def test_it_is_made_once_and_found_again(wheel: Path, python: Interpreter, cache: Path) -> None:
    assert existing(stack("tiny"), python, cache) is None
    first = provide(stack("tiny"), python, cache, quiet)
    wheel.unlink()  # pip would not find it again
    steps: list[str] = []
    assert (
        provide(stack("tiny"), python, cache, steps.append)
        == first
        == existing(stack("tiny"), python, cache)
    )
    assert steps == []
    assert [made.folder for made in environments(cache)] == [first.folder]


@pytest.mark.slow
def test_what_decides_what_is_installed_decides_the_environment(
    wheel: Path, python: Interpreter, cache: Path, tmp_path: Path
) -> None:
    made = {provide(stack("tiny"), python, cache, quiet).folder}
    made.add(provide(stack("tiny==1.0"), python, cache, quiet).folder)
    made.add(provide(stack("tiny", options=("--no-deps",)), python, cache, quiet).folder)
    made.add(provide(stack(str(wheel)), python, cache, quiet).folder)
    assert len(made) == 4
    write_wheel(tmp_path / "wheels", "tiny", "1.0", code="CHANGED = True\n")
    again = provide(stack(str(wheel)), python, cache, quiet)
    assert run(again.interpreter, "import tiny; print(tiny.CHANGED)") == "True"
    assert again.folder not in made


@pytest.mark.parametrize(
    ("requirement", "says"),
    [
        pytest.param(
            "tiny==2.0", "No matching distribution found for tiny==2.0", marks=pytest.mark.slow
        ),
        pytest.param(
            "no-such", "No matching distribution found for no-such", marks=pytest.mark.slow
        ),
        pytest.param("other", "No matching distribution found for tiny==9", marks=pytest.mark.slow),
        pytest.param(
            "foreign", "No matching distribution found for foreign", marks=pytest.mark.slow
        ),
    ],
    ids=["unknown version", "unknown name", "dependency", "other platform"],
)
def test_what_can_not_be_installed_says_pips_last_words_and_leaves_nothing(
    wheel: Path, python: Interpreter, cache: Path, tmp_path: Path, requirement: str, says: str
) -> None:
    write_wheel(tmp_path / "wheels", "other", "1", needs="tiny==9")
    wrong = write_wheel(tmp_path / "wheels", "foreign", "1")
    wrong.rename(wrong.with_name("foreign-1-cp27-cp27m-win32.whl"))
    with pytest.raises(StackError) as raised:
        provide(stack(requirement), python, cache, quiet)
    text = str(raised.value)
    assert text.startswith(
        f"stack mine can't be made with Python {python.version}\n  installing ended with status 1:\n"
    )
    assert says in text
    assert folders(cache) == set()
    with pytest.raises(StackError) as again:
        provide(stack(requirement), python, cache, lambda step: pytest.fail("it was tried again"))
    assert str(again.value) == text


@pytest.mark.slow
def test_requirements_that_conflict_are_an_error(
    wheel: Path, python: Interpreter, cache: Path, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "tiny", "2.0")
    write_wheel(tmp_path / "wheels", "other", "1", needs="tiny<2")
    with pytest.raises(StackError, match="conflict"):
        provide(stack("other", "tiny>=2"), python, cache, quiet)
    assert folders(cache) == set()


@pytest.mark.slow
def test_a_lock_file_gives_exactly_its_packages(
    wheel: Path, python: Interpreter, cache: Path, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "tiny", "2.0")
    lock = tmp_path / "mine.lock"
    lock.write_text("# made by hand\ntiny==1.0\n\n")
    assert "tiny==2.0" in provide(stack("tiny"), python, cache, quiet).lock
    assert "tiny==1.0" in provide(stack("tiny", lock=lock), python, cache, quiet).lock
    lock.write_text("tiny==2.0\n")
    assert "tiny==2.0" in provide(stack("tiny", lock=lock), python, cache, quiet).lock


@pytest.mark.parametrize("text", ["", "other==1\n", "tiny==0.9\n"])
def test_a_lock_file_that_does_not_meet_the_requirements_is_an_error(
    wheel: Path, python: Interpreter, cache: Path, tmp_path: Path, text: str
) -> None:
    (tmp_path / "mine.lock").write_text(text)
    with pytest.raises(
        StackError,
        match=r"mine\.lock has nothing that is tiny>=1; 'mlms stack lock mine' writes it anew",
    ):
        provide(stack("tiny>=1", lock=tmp_path / "mine.lock"), python, cache, quiet)


def test_a_lock_file_that_is_not_there_is_an_error(
    python: Interpreter, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        StackError,
        match=r"none\.lock can't be read: No such file .*'mlms stack lock mine' writes it",
    ):
        provide(stack("tiny", lock=tmp_path / "none.lock"), python, cache, quiet)


MAKE = """
import sys, time
from pathlib import Path
from pytest_mlms.stacks.environments import provide
from pytest_mlms.stacks.interpreters import probe
from pytest_mlms.records import Stack

def show(step):
    print("step", step, flush=True)
    if step.startswith("Installing") and "stay" in sys.argv:
        time.sleep(3600)  # while pip goes on

made = provide(Stack("mine", "any", requirements=("tiny",)), probe(sys.executable), Path(sys.argv[1]), show)
print("made", made.folder, flush=True)
sys.stdin.read()
"""


def maker(cache: Path, *how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAKE, str(cache), *how]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_two_processes_that_want_one_stack_make_it_once(wheel: Path, cache: Path) -> None:
    makers = [maker(cache) for _ in range(3)]
    said = [process.communicate(timeout=3600)[0].splitlines() for process in makers]
    assert len({lines[-1] for lines in said}) == 1
    assert sorted(len(lines) == 1 for lines in said) == [False, True, True], said
    assert len(folders(cache)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name
)
def test_a_process_that_ends_while_it_installs_leaves_no_environment(
    wheel: Path, python: Interpreter, cache: Path, how: signal.Signals
) -> None:
    with maker(cache, "stay") as process:
        assert process.stdout
        assert any(line.startswith("step Installing") for line in process.stdout)
        process.send_signal(how)
        process.communicate(timeout=3600)
    assert list(environments(cache)) == []
    if how == signal.SIGINT:
        assert folders(cache) == set()
    made = provide(stack("tiny"), python, cache, quiet)
    assert run(made.interpreter, "import tiny; print(tiny.VERSION)") == "1.0"
    assert list(environments(cache)) == [made]


@pytest.mark.slow
def test_a_stack_is_not_removed_while_a_process_uses_it(wheel: Path, cache: Path) -> None:
    with maker(cache) as process:
        assert process.stdout
        assert any(line.startswith("made") for line in process.stdout)
        (made,) = environments(cache)
        with pytest.raises(
            StackError, match="stack mine is in use by a process; wait for it, or end it"
        ):
            remove(made)
        assert made.interpreter.exists()
        process.communicate(timeout=3600)
    remove(made)
    assert list(environments(cache)) == []
    assert folders(cache) == set()


def test_an_environment_that_the_system_does_not_let_go_is_an_error_with_its_path(
    cache: Path,
) -> None:
    made = Environment(
        cache / "stacks" / "aa", "mine", "3.11.2", "linux", ("tiny",), ("tiny==1.0",)
    )
    (cache / "stacks" / "requests").mkdir(parents=True)
    made.folder.mkdir()
    Path(f"{made.folder}.use").mkdir()  # root, too, can't open it as a file
    with pytest.raises(
        StackError,
        match=r"stack mine can't be removed: Is a directory \(.*/stacks/aa\.use\); grant",
    ):
        remove(made)
    assert made.folder.exists()


@pytest.mark.slow
def test_what_somebody_removed_by_hand_is_made_again(
    wheel: Path, python: Interpreter, cache: Path
) -> None:
    made = provide(stack("tiny"), python, cache, quiet)
    subprocess.run(["rm", "-r", made.folder, f"{made.folder}.use"], check=True)
    assert existing(stack("tiny"), python, cache) is None
    again = provide(stack("tiny"), python, cache, quiet)
    assert again == made
    assert again.interpreter.exists()
    assert Path(f"{made.folder}.use").exists()


def test_a_cache_that_can_not_be_written_is_an_error(python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StackError, match="stack mine: Not a directory .*name another cache with --mlms-cache"
    ):
        provide(stack("tiny"), python, tmp_path / "file", quiet)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"can't mount a small file system here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.slow
def test_a_full_disk_is_an_error_that_says_so_and_leaves_nothing(
    small_disk: Path, python: Interpreter, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "tiny", "1.0", size=64 << 20)
    with pytest.raises(
        StackError, match="make room, or name another cache with --mlms-cache"
    ) as raised:
        provide(stack("tiny"), python, small_disk, quiet)
    assert "No space left on device" in str(raised.value)
    assert folders(small_disk) == set()


@pytest.mark.slow
def test_uv_makes_the_same_environment(
    wheel: Path, python: Interpreter, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheel.parent))
    if subprocess.run(["sh", "-c", "command -v uv"], capture_output=True).returncode:
        pytest.skip("uv isn't installed here")
    made = provide(stack("tiny", installer="uv"), python, cache, quiet)
    assert made.lock == ("tiny==1.0",)
    assert run(made.interpreter, "import tiny; print(tiny.VERSION)") == "1.0"


def test_an_installer_that_is_not_there_is_lacking(
    python: Interpreter, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_mlms.errors import Unavailable

    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        Unavailable, match="to be installed by uv, which isn't there; pip install uv"
    ):
        provide(stack("tiny", installer="uv"), python, cache, quiet)
    assert folders(cache) == set()


def test_what_a_killed_installation_left_is_cleared_and_what_goes_on_is_not(cache: Path) -> None:
    requests = cache / "stacks" / "requests"
    requests.mkdir(parents=True)
    for name in ("aa-1.new", "bb-2.new"):
        (cache / "stacks" / name / "lib").mkdir(parents=True)
    with filelock.FileLock(requests / "bb.lock"):
        clear_strays(cache)
    assert folders(cache) == {"bb-2.new"}


@pytest.mark.slow
def test_a_cache_that_is_named_relatively_is_the_same_one(
    wheel: Path, python: Interpreter, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = provide(stack("tiny"), python, Path("cache"), quiet)
    assert made.interpreter.is_absolute()
    assert existing(stack("tiny"), python, cache) == made
