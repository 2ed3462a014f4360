"""Text from elsewhere, made fit for a terminal and for XML."""

from __future__ import annotations

import difflib
import itertools
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Controls of a terminal but tab and newline, and what XML and UTF-8 can't have."""

_LONGEST_WORD = 500

_SCHEMES = ("postgres", "postgresql", "postgresql+psycopg", "sqlite")
_NO_FOLDERS = ("file", "http", "https")
"""Further schemes, of which only the exact word is one: folders are called files."""

_UNSAFE = re.compile(rf"{_CONTROL.pattern[:-1]}\u202a-\u202e\u2066-\u2069]")
"""These, and the characters that make text run the other way than it is written."""


def close_words(word: str, known: Sequence[str], most: int = 1, likeness: float = 0.6) -> list[str]:
    """Return the known words that a word may stand for; none for one longer than any name."""
    if len(word) > _LONGEST_WORD:
        return []
    return difflib.get_close_matches(word, known, most, likeness)


def seems_url(text: str) -> bool:
    """Return whether an address without :// was probably meant to be a URL, and not a path.

    It begins with a scheme, a host or a user before a colon, or with about a known scheme before
    two slashes. ``./`` before it makes it a path, and a drive has one letter.
    """
    if ":" in text.partition("/")[0][2:]:
        return True
    word, slashes, _ = text.partition("//")
    if not slashes or "/" in word:
        return False
    name = word.lower()
    return name in _NO_FOLDERS or bool(close_words(name, _SCHEMES, likeness=0.75))


def find_control(text: str) -> str:
    """Return the first control character of a text that isn't a tab or a newline; "" for none."""
    found = _CONTROL.search(text)
    return found[0] if found else ""


def visible(text: str) -> str:
    r"""Return a text with each control character as its escape, such as ``\x1b``."""
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


@lru_cache(maxsize=4096)
def columns_of(text: str) -> int:
    """Return the columns of a terminal that a text takes, as UAX 11 has them.

    A wide character, as of Chinese, takes two, and one that combines with the one before none.
    """
    if not text or max(text) < "\u0300":
        return len(text)
    marks = sum(unicodedata.category(each) in ("Mn", "Me", "Cf") for each in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(each) in "WF" for each in text)


def beginning_of(text: str, columns: int) -> str:
    """Return as much of a text as so many columns have room for."""
    ends = itertools.accumulate(map(columns_of, text))
    return text[: sum(end <= columns for end in ends)]


def encodable(text: str) -> str:
    r"""Return a text with what UTF-8 can't have as its escape, such as ``\ud800``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def shortened(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters: its beginning and its end."""
    if len(text) <= most:
        return text
    kept = most - 3
    end = kept // 3
    return f"{text[: kept - end]} … {text[len(text) - end :]}"


def file_stem(path: str) -> str:
    """Return a name for the results of a file: the file's name in letters, digits and ._-."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    while "." in name.lstrip("."):
        name = name.rpartition(".")[0]
    name = re.sub(r"^[a-z0-9_]*=", "", name)
    name = re.sub(r"(-symbol|_predict)$", "", name)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._") or "model"
