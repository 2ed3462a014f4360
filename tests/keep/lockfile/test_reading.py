"""Lock files that are damaged, merged badly, or of another version."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.keep.lockfile.lock import Lock
from pytest_mlms.keep.lockfile.reading import LockError, parse_lock, read_lock
from pytest_mlms.keep.lockfile.writing import lock_text
from tests.support.locks import ACCURACY, PERFORMANCE, line_of, lock_of

TEXT = lock_text(lock_of(line_of(ACCURACY), line_of(PERFORMANCE)))


def error_of(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(LockError) as raised:
        parse_lock(data, "mlms.lock")
    return str(raised.value)


def line_with(part: str) -> int:
    return TEXT[: TEXT.index(part)].count("\n") + 1


def test_a_conflict_of_a_merge_is_an_error_at_its_line() -> None:
    first, rest = TEXT.split("[items]\n")
    text = f"{first}[items]\n<<<<<<< HEAD\n{rest}=======\n{rest}>>>>>>> other\n"
    line = line_with("[items]") + 1
    assert error_of(text).startswith(f"mlms.lock:{line}: has a conflict of a merge; keep the lines")


def test_a_newer_format_is_refused_with_both_versions() -> None:
    text = TEXT.replace("format = 1", "format = 2").replace("[items]", "[entries]")
    found = error_of(text)
    assert found.startswith("mlms.lock:2: is of format 2, and pytest-mlms ")
    assert "reads format 1; install a newer one" in found


@pytest.mark.parametrize("written", ["", "format = 0", "format = '1'", "format = true"])
def test_a_file_without_a_format_is_refused(written: str) -> None:
    assert "'format = 1' is missing" in error_of(TEXT.replace("format = 1", written))


@pytest.mark.parametrize(
    ("old", "new", "place", "problem"),
    [
        ("right = 594", 'right = "594"', ACCURACY, "right: found '594'; write a whole number"),
        ("right = 594", "wrong = 594", ACCURACY, "unknown key 'wrong'"),
        ("right = 594", "right = -1", ACCURACY, "right: found -1"),
        ("3" * 16, "3" * 15, ACCURACY, "predictions: '333333333333333' is no digest; write 16"),
        ('python = "3.11.7"', "python = 3.11", "python", "found 3.11; write text"),
        ('  "numpy==2.4.6"', "  5", "packages", "found 5; write text"),
        ("packages = [", 'variables = ["OMP"]\npackages = [', "packages", "is no variable; write"),
        ("5.00 ms (4.90", "5.00 m (4.90", "[timings", "is no timing; write one as in"),
        ('stack = "here"', 'stack = "there"', ACCURACY, "there is no stack 'there' in the file"),
    ],
)
def test_a_wrong_value_is_an_error_at_its_line(
    old: str, new: str, place: str, problem: str
) -> None:
    found = error_of(TEXT.replace(old, new, 1))
    line = line_with(place) if place != "[timings" else line_with("[timings") + 1
    assert found.startswith(f"mlms.lock:{line}: ")
    assert problem in found


def test_invalid_toml_is_an_error_at_its_line() -> None:
    found = error_of(TEXT.replace("packages = [", "packages = ", 1))
    assert found.startswith(f"mlms.lock:{line_with('packages')}: is not TOML: ")
    assert error_of(TEXT[:-20]).startswith("mlms.lock:")
    assert ":2: is not UTF-8" in error_of(b"format = 1\n\xff\n")
    assert "has the control character" in error_of(TEXT.replace("3.11.7", "3\\u001b", 1))
    assert "nested too deeply" in error_of(f"a{'.a' * 9000} = 1\n")


def test_two_lines_of_one_item_are_an_error() -> None:
    line = TEXT.splitlines()[line_with(ACCURACY) - 1]
    assert f"mlms.lock:{line_with(ACCURACY) + 1}: is not TOML" in error_of(
        TEXT.replace(line, f"{line}\n{line}")
    )


def test_a_file_that_is_not_there_or_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="there is no .*mlms.lock; write it by 'mlms lock write'"):
        read_lock(tmp_path / "mlms.lock")
    with pytest.raises(LockError, match="can't be read: it is a folder"):
        read_lock(tmp_path)


def test_an_empty_lock_is_read() -> None:
    assert parse_lock(b"format = 1\n", "mlms.lock") == Lock()
