"""The text of lock files: what is read is what was written, and diffs are short."""

from __future__ import annotations

import difflib
import random

from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.text import find_control
from pytest_mlms.keep.lockfile.lock import Lock, LockedItem, LockedStack
from pytest_mlms.keep.lockfile.reading import parse_lock
from pytest_mlms.keep.lockfile.timing import timings_of
from pytest_mlms.keep.lockfile.writing import lock_text
from tests.support.locks import ACCURACY, PACKAGES, PERFORMANCE, line_of, lock_of

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
