"""Forms of Python code: a digest of its tokens without the numbers, and the numbers in order.

Nothing is run, imported or compiled.
"""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

Values = Mapping[str, Sequence[Decimal]]
"""The numbers of a code by the names that a pattern has for them."""

_LONGEST_TEXT = 20_000  # characters, ten times those of the longest form
_DIGITS = 32  # of a digest
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}")
_WITHOUT_TEXT = {
    tokenize.NEWLINE: "end of line",
    tokenize.INDENT: "indent",
    tokenize.DEDENT: "dedent",
    tokenize.ENDMARKER: "end",
}
"""Tokens whose text is white space."""


@dataclass(frozen=True)
class CodeForm:
    """A digest of the tokens of code, in which each number is blank, and its numbers as written."""

    digest: str
    numbers: tuple[str, ...]


def code_form(text: str) -> CodeForm | None:
    """Return the form of code; None where it has no tokens of Python, or is very long.

    Comments, empty lines, blanks within lines and the depth of indentation make no difference.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, UnicodeError):
        return None
    digest = hashlib.sha256()
    numbers = []
    for token in tokens:
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        if token.type == tokenize.NUMBER:
            numbers.append(token.string)
        digest.update(_content(token).encode() + b"\n")
    return CodeForm(digest.hexdigest()[:_DIGITS], tuple(numbers))


def _content(token: tokenize.TokenInfo) -> str:
    """Return the part of a token that belongs to the form; numbers of kinds differ by Python."""
    if token.type == tokenize.NUMBER:
        return "number"
    if token.type in _WITHOUT_TEXT:
        return _WITHOUT_TEXT[token.type]
    return f"text {token.string!a}"


def read_values(pattern: str, numbers: Sequence[str]) -> Values | None:
    """Return the numbers of code by the words of a pattern; None where they don't fit it.

    A word that is a number is one that the code must have. All others are names; numbers of one
    name are equal, unless it ends with ``+``, which stands for a list.
    """
    words = pattern.split()
    if len(words) != len(numbers):
        return None
    values: dict[str, list[Decimal]] = {}
    for word, text in zip(words, numbers, strict=True):
        if not _DECIMAL.fullmatch(text):
            return None
        number = Decimal(text)
        if word[0].isdigit():
            expected = Decimal(word)
        elif word.endswith("+"):
            values.setdefault(word.removesuffix("+"), []).append(number)
            continue
        else:
            expected = values.setdefault(word, [number])[0]
        if number != expected:
            return None
    return values


def whole_number(values: Values, name: str, least: int = 0, most: int = 10_000) -> int | None:
    """Return the value of a name as a whole number of a range; None where it is none."""
    if name not in values:
        return None
    value = values[name][0]
    if value != int(value) or not least <= value <= most:
        return None
    return int(value)
