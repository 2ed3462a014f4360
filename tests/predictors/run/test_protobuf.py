"""Protocol-buffer messages are read and written as the encoding says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.protobuf import Field, encode_field, fields, last_value, values

from pytest_mlms.measure.trace.exporters.perfetto_packets import message


@given(st.lists(st.tuples(st.integers(1, 1 << 20), st.binary() | st.integers(0, 1 << 62))))
def test_fields_are_read_in_their_order(written: list[tuple[int, bytes | int]]) -> None:
    assert list(fields(message(*written))) == [Field(*pair) for pair in written]


@given(st.integers(1, 1 << 20), st.binary(max_size=300))
def test_a_field_is_encoded_as_a_message_has_it(number: int, content: bytes) -> None:
    assert encode_field(number, content) == message((number, content))


def test_fields_of_a_fixed_size_are_passed_over() -> None:
    fixed_32 = b"\x0d\x01\x02\x03\x04"
    encoded = message((1, 2.5)) + fixed_32 + message((1, b"text"))
    assert values(encoded, 1) == [b"text"]


def test_the_last_value_of_a_field_counts() -> None:
    assert last_value(message((1, 5), (2, 6), (1, 7)), 1) == 7
    with pytest.raises(ValueError, match="the message has no field 3"):
        last_value(message((1, 5)), 3)


def test_a_part_of_a_memoryview_is_not_copied() -> None:
    (part,) = values(memoryview(message((1, b"text"))), 1)
    assert isinstance(part, memoryview)
    assert bytes(part) == b"text"


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"\x0a\x05text", "a field is cut short"),
        (b"\x09\x00", "a field is cut short"),
        (b"\x08\xff", "a number is cut short"),
        (b"\x0f", "there is no wire type 7"),
        (b"\x0b", "a group is cut short"),
        (b"\x0c", "a group is cut short"),
        (b"\x08" + b"\xff" * 11, "or too long"),
    ],
)
def test_what_is_no_message_is_an_error(encoded: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(fields(encoded))
