"""Text from elsewhere, made fit for a terminal and for XML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import encodable, find_control, seems_url, shortened, visible

CODES = st.integers(0, 0x10FFFF)
TEXTS = st.lists(CODES | st.integers(0, 0xFF)).map(lambda codes: "".join(map(chr, codes)))


def test_a_control_character_is_shown_as_its_escape() -> None:
    assert visible("a\x1b[2J\x9b\r\x00\ud800\u202e.") == r"a\x1b[2J\x9b\r\x00\ud800\u202e."
    assert visible("a\tb\nµ 模型 é") == "a\tb\nµ 模型 é"


def test_a_control_character_is_found() -> None:
    assert find_control("a\tb\n\x07") == "\x07"
    assert find_control("µ 模型") == ""


@given(TEXTS)
def test_any_text_is_fit_for_xml_and_utf_8(text: str) -> None:
    element = ElementTree.Element("a")
    element.text = shown = visible(text)
    assert ElementTree.fromstring(ElementTree.tostring(element, "utf-8")).text == (shown or None)


@pytest.mark.parametrize(
    "text",
    [
        "postgres//x",
        "postgresql//host/d",
        "postgresq//host/d",
        "postgresql+psycopg//host/d",
        "postgresql:/host/d",
        "postgresql:host/d",
        "sqlite//h.sqlite",
        "file//h.sqlite",
        "db.example.org:5432/d",
        "joe:s3cret@host/d",
    ],
)
def test_a_mistyped_url_is_told_from_a_path(text: str) -> None:
    assert seems_url(text)
    assert not seems_url(f"./{text}")
    assert not seems_url(f"/home/{text}")


@pytest.mark.parametrize(
    "text",
    [
        "h.sqlite",
        "results//h.sqlite",
        "files//h.sqlite",
        "postgres/x",
        "~/a:b",
        "C:/h.sqlite",
        "../x//y",
        "",
    ],
)
def test_a_path_is_not_taken_for_a_url(text: str) -> None:
    assert not seems_url(text)


def test_a_lone_surrogate_is_escaped() -> None:
    assert encodable("a\ud800\x1b") == "a\\ud800\x1b"


def test_an_error_can_not_command_the_terminal() -> None:
    assert str(MlmsError("the layer \x1b]0;title\x07")) == r"the layer \x1b]0;title\x07"


@given(st.text(), st.integers(5, 30))
def test_a_long_text_keeps_its_beginning_and_its_end(text: str, most: int) -> None:
    short = shortened(text, most)
    assert len(short) <= most
    beginning, _, end = short.partition(" … ")
    assert short == text or (text.startswith(beginning) and text.endswith(end))
