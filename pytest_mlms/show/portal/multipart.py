"""Forms with files (multipart/form-data, RFC 7578), of a body that is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from email.utils import collapse_rfc2231_value

from starlette.exceptions import HTTPException

from pytest_mlms.predict.inputs import Given, Value

_MOST_PARTS = 64
_LONGEST_HEAD = 4096  # bytes
_LINE = b"\r\n"
_INPUT = "input"


@dataclass(frozen=True)
class Part:
    """A field of a form; one of a file has its name, which may be empty."""

    name: str
    filename: str | None
    content: bytes

    @property
    def text(self) -> str:
        """The content as a text; raises HTTPException where it is none."""
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise HTTPException(400, f"{self.name[:50]!r} is no text in UTF-8") from None


def parse_multipart(body: bytes, content_type: str) -> list[Part]:
    """Return the fields of a form with files; raises HTTPException for anything else."""
    head = Message()
    head["Content-Type"] = content_type
    boundary = head.get_param("boundary")
    if head.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        raise HTTPException(415, "send multipart/form-data, with its boundary")
    delimiter = _LINE + b"--" + boundary.encode("ascii", "replace")
    pieces = (_LINE + body).split(delimiter, _MOST_PARTS + 1)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise HTTPException(400, f"the form is cut off, or has more than {_MOST_PARTS} fields")
    return list(_parts(pieces[1:-1]))


def _parts(pieces: Sequence[bytes]) -> Iterator[Part]:
    for piece in pieces:
        head, blank, content = piece.partition(_LINE + _LINE)
        if not blank or len(head) > _LONGEST_HEAD:
            raise HTTPException(400, "a field of the form has no head, or too long a one")
        fields = HeaderParser().parsestr(head.lstrip(b" \t\r\n").decode("utf-8", "replace"))
        name = fields.get_param("name", header="content-disposition")
        filename = fields.get_param("filename", header="content-disposition")
        if not isinstance(name, str):
            raise HTTPException(400, "a field of the form has no name")
        yield Part(name, None if filename is None else _plain(filename), content)


def _plain(filename: str | tuple[str | None, str | None, str]) -> str:
    """Return a file's name in the character set that it says; raises HTTPException."""
    try:
        plain = collapse_rfc2231_value(filename)
        plain.encode()  # character sets of Python's own have halves of characters
    except ValueError:
        raise HTTPException(400, "the name of a file is no text; send it as UTF-8") from None
    return plain


def given_of(parts: Sequence[Part]) -> tuple[Given, str]:
    """Return the input that a form has, and what it is called: a file's name, or the text.

    It is ``input``, or for a model with several ``input.COLUMN`` of each. A file is bytes, and any
    other field a text. Files that were not chosen don't count. Raises HTTPException where there is
    no input.
    """
    values: dict[str, Value] = {}
    names = []
    for part in parts:
        field, _, column = part.name.partition(".")
        is_chosen = part.filename or part.content or part.filename is None
        if field == _INPUT and is_chosen:
            values[column] = part.text if part.filename is None else part.content
            names.append(part.filename or (part.text if part.filename is None else ""))
    if not values or ("" in values and len(values) > 1):
        raise HTTPException(400, "send one 'input', or for several 'input.NAME' of each")
    return values.get("", values), ", ".join(names)
