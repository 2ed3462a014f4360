"""Checks of lines of results, whoever wrote them."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from pytest_mlms.keep.history.adding import add_content
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.run_content import gather
from pytest_mlms.keep.history.run_lines import check_line, read_run
from pytest_mlms.keep.history.store import open_history
from tests.support.histories import item_line, run_lines


def encode(line: Any) -> bytes:
    return f"{json.dumps(line)}\n".encode()


def test_the_lines_of_a_run_are_valid() -> None:
    lines = [encode(line) for line in run_lines(0, items=2)]
    assert [line.type for line in read_run(lines, "it")] == ["run", "item", "item", "end"]
    assert [line.number for line in read_run(lines, "it")] == [0, 1, 2, 3]


def test_a_type_that_is_not_known_is_kept() -> None:
    line = {**item_line(0), "type": "sides"}
    assert check_line(0, encode(line)).type == "sides"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\n", "it is no JSON"),
        (b'{"format": 1\n', "it is no JSON"),
        (b"\xff\xfe\n", "it is no JSON"),
        (b"[" * 100_000, "it is"),
        (b"[]\n", "it is no JSON object"),
        (b'{"format": 2, "type": 3}\n', "it has format 2, this version reads 1; upgrade"),
        (b'{"format": 1}\n', "run: field required"),
        (encode({**item_line(0), "run": ""}), "run: string should have at least 1 character"),
        (encode({**item_line(0), "run": "a\0b"}), "NUL"),
        (encode({**item_line(0), "run": "a\ud800b"}), "run: input should be a valid string"),
        (encode({**item_line(0), "time": "2026-01-01T00:00:00"}), "time: has no time zone"),
        (encode({**item_line(0), "time": "yesterday"}), "time: invalid isoformat"),
        (encode({**item_line(0), "time": "0001-01-01T00:00:00+14:00"}), "time: is out of range"),
        (encode({**item_line(0), "time": "9999-12-31T23:59:59-14:00"}), "time: is out of range"),
        (encode({**next(run_lines(0)), "began": "yesterday"}), "began: invalid isoformat"),
        (encode({**item_line(0), "estimates": {"top1": {}}}), "estimates.top1.value: field"),
        (encode({**item_line(0), "load": {"latency": "15 ms"}}), "load: the latency is no number"),
        (encode({**item_line(0), "load": {"latency": 10**400}}), "load: the latency is no number"),
        (encode({**item_line(0), "load": {"latency": True}}), "load: the latency is no number"),
        (
            encode({**item_line(0), "load": {"ttft": "15 ms", "precision": 0.05}}),
            "load: the ttft is no number",
        ),
        (encode({**item_line(0), "seed": float("nan")}), "NaN is no number of JSON"),
    ],
)
def test_a_line_that_is_not_valid_is_refused_with_the_reason(data: bytes, problem: str) -> None:
    with pytest.raises(HistoryError) as raised:
        check_line(0, data)
    assert problem in str(raised.value)


def test_an_error_names_the_file_and_the_line() -> None:
    lines = [encode(line) for line in run_lines(0)]
    lines[1] = b"{}\n"
    with pytest.raises(HistoryError, match=r"^runs/a/results\.jsonl:2: format: field required"):
        list(read_run(lines, "runs/a/results.jsonl"))


def test_a_message_may_have_what_a_name_may_not() -> None:
    line = {**item_line(0), "message": "expected \0, found \ud800"}
    assert check_line(0, encode(line)).fields["message"] == line["message"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value within a value of JSON."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield from places(value[key], (*path, key))


RUN, END = run_lines(0, items=0)
LINES = [
    {**RUN, "git": {"sha": "0" * 40, "dirty": True, "branch": "main"}, "ci": {"url": "https://x"}},
    item_line(0, variant="int8", shape="long", caches="cold", definition="0123456789abcdef"),
    {**RUN, "type": "teardown", "nodeid": "a.py::test_a", "repetition": 2},
    END,
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=4,
)


@settings(max_examples=150)
@given(place=st.sampled_from([place for place in places(LINES) if len(place) > 1]), value=JSON)
@example(place=(1, "machine", "memory"), value=5e-324)
@example(place=(1, "variant"), value={"int8": 1})
@example(place=(1, "shape"), value=[1])
@example(place=(1, "caches"), value=7)
@example(place=(1, "estimates", "throughput", "value"), value=1e999)
@example(place=(1, "estimates", "throughput", "value"), value=1 << 63)
@example(place=(1, "seconds", "call"), value=1 << 63)
def test_a_line_with_any_value_at_any_place_is_added_or_refused(
    address: str, place: tuple[Any, ...], value: Any
) -> None:
    lines = copy.deepcopy(LINES)
    holder: Any = lines
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    try:
        content = gather(read_run([encode(line) for line in lines], "it"))
    except HistoryError:
        return
    assert content is not None
    with engine_of(address).connect() as connection:
        add_content(connection, content, "it")  # and rolls back


@functools.lru_cache
def engine_of(address: str) -> Engine:
    return open_history(address)
