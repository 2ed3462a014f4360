"""Lock files that are damaged, merged badly, or of another version, and their writing."""

from __future__ import annotations

import difflib
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.text import find_control
from pytest_mlms.keep.lockfile.lock import Lock, LockedItem, LockedStack, timings_of
from pytest_mlms.keep.lockfile.reading import LockError, lock_text, parse_lock, read_lock
from tests.support.locks import ACCURACY, PACKAGES, PERFORMANCE, line_of, lock_of

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


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(
    lambda text: not find_control(text)
)
digests = st.text("0123456789abcdef", min_size=16, max_size=16)
sizes = st.floats(1e-9, 1e15)
stacks = st.builds(LockedStack, python=texts, packages=st.lists(texts, max_size=3).map(tuple))
counts = st.none() | st.integers(0, 2**60)
timings = st.tuples(sizes, sizes, sizes).map(
    lambda ends: dict(
        timings_of({"latency_p50": dict(zip(("low", "value", "high"), sorted(ends), strict=True))})
    )
)


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    made = draw(st.dictionaries(texts, stacks, min_size=1, max_size=3))
    items = st.builds(
        LockedItem,
        stack=st.sampled_from(sorted(made)),
        manifest=texts,
        framework=texts,
        device=texts,
        model=st.dictionaries(texts, digests, max_size=2),
        dataset=st.none() | digests,
        predictions=st.none() | digests,
        right=counts,
        inputs=counts,
        accuracy=st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False)),
        layers=st.none() | digests,
    )
    by_item = st.dictionaries(texts, timings, max_size=2)
    return Lock(
        stacks=made,
        items=draw(st.dictionaries(texts, items, max_size=3)),
        timings=draw(st.dictionaries(texts, by_item, max_size=2)),
    )


@given(locks())
def test_what_is_written_is_read_again(lock: Lock) -> None:
    text = lock_text(lock)
    assert parse_lock(text.encode(), "mlms.lock") == lock
    assert lock_text(parse_lock(text.encode(), "mlms.lock")) == text


def test_the_order_of_the_run_does_not_change_the_file() -> None:
    lines = [line_of(f"m{number}.yaml::test_accuracy[x]") for number in range(20)]
    text = lock_text(lock_of(*lines))
    random.Random(0).shuffle(lines)
    assert lock_text(lock_of(*lines)) == text


def test_one_package_is_one_line_of_a_diff() -> None:
    lines = [line_of(f"m{number}.yaml::test_accuracy[x]") for number in range(40)]
    newer = [
        {**line, "launch": {"packages": [PACKAGES[0], "onnxruntime==1.32.0"]}} for line in lines
    ]
    before = lock_text(lock_of(*lines)).splitlines()
    after = lock_text(lock_of(*newer)).splitlines()
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert changed == ['-   "onnxruntime==1.20.1",', '+   "onnxruntime==1.32.0",']


def test_each_item_has_a_line() -> None:
    text = lock_text(lock_of(line_of(ACCURACY), line_of(PERFORMANCE)))
    assert sum(line.startswith(f'"{ACCURACY}" = ') for line in text.splitlines()) == 1
    assert 'latency_p50 = "5.00 ms (4.90 ms to 5.10 ms)"' in text
    assert 'throughput = "12300 /s (12000 /s to 12700 /s)"' in text
    assert "2026" not in text
