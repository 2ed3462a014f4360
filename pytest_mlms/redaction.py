"""Removal of secrets from addresses: passwords, tokens and signatures; and of paths and hosts.

Texts pass it once, where they are made: those of errors in ``MlmsError``, an item's line of the
results in ``ItemResult``, and those of libraries' logs where they are logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["anonymous", "redact", "redact_all"]

_HIDDEN = "***"
_USER = re.compile(r"""(?<=://)[^\s/?#"'<>]+@""")
_DATABASE = re.compile(r"""(postgres(?:ql)?(?:\+\w{1,20})?://)[^\s"'<>]{0,4096}@""")
"""The user of a database's URL, whose password may have what others would have to escape."""

_VALUE = re.compile(r"""([?&][\w.~%+\[\]-]+=)[^\s&#"'<>)]+""")

_ROOTS = (
    "app|builds|content|data|etc|export|github|home|media|mnt|nfs|opt|private|proc|root|run|runner"
    "|scratch|srv|tmp|Users|usr|var|work|workspace"
)
"""First folders of paths on machines. Names of layers begin with a slash, too."""

_NAME = re.compile(r"\.(?=\w*[A-Za-z])\w{1,10}\b(?!/)")
"""The end of a file's name. Layers are numbered behind a point, as in layer1.0."""

_PLACE = re.compile(
    rf"""
    (?P<address>https?://[^\s'"<>|;,)\]]+)
    | (?P<quote>['"])(?P<quoted>[^'"\n]*)(?P=quote)
    | file://[^\s'"<>|;,)\]]+
    | (?<![\w/.:-])/(?:{_ROOTS})(?:/[^\s'"<>|:;,()\[\]]*|(?![\w/]))
    | (?<![\w.])(?:~|[A-Za-z]:)[\\/][^\s'"<>|;,()\[\]:]*
    | (?<![^\s'"<>|;,()\[\]=])(?P<word>[^\s'"<>|:;,()\[\]=/]*/[^\s'"<>|:;,()\[\]]*)
    """,
    re.VERBOSE,
)
"""An address, or what may be a path: a text in quotes, a file's address, a place below one of the
roots or a home, or a word with a slash. It looks at no character often, whatever a stranger wrote.
"""

_QUOTED_PATH = re.compile(rf"file://|~/|[A-Za-z]:[\\/]|/(?:{_ROOTS})/")

_PUBLIC = re.compile(r"https?://(?:github\.com|pypi\.org)/")
"""Addresses that are no one's own."""

_CODE = re.compile(r"[\w.+-]+\.(?:py|cc|cpp|cxx|cu|cuh|c|h|hpp|rs|so[\d.]*|dylib|dll)")
"""Files of programs, whose names say what failed and not whose machine it was."""


def anonymous(text: str, host: str = "") -> str:
    """Return ``text`` without secrets, paths, private addresses, and the name of a host.

    A path is replaced by PATH; of a source file or a library its name stays. It is recognised by
    its form: what is written here may have happened on another machine.
    """
    text = "".join(_without_places(redact(text)))
    if host:
        text = re.sub(rf"(?<!\w){re.escape(host)}(?!\w)", "HOST", text)
    return text


def _without_places(text: str) -> Iterator[str]:
    """Yield a text in parts, with what stands for its addresses and paths."""
    done = at = 0
    while found := _PLACE.search(text, at):
        end = _end_of_place(found)
        at = max(end, found.start() + 1)
        if end:
            yield text[done : found.start()]
            yield _in_place_of(text[found.start() : end], found)
            done = end
    yield text[done:]


def _end_of_place(found: re.Match[str]) -> int:
    """Return where an address or a path ends, 0 where it is none."""
    if found["quote"] is not None:
        quoted = found["quoted"]
        is_file = "/" in quoted and any(end.end() == len(quoted) for end in _NAME.finditer(quoted))
        return found.end() if is_file or _QUOTED_PATH.match(quoted) else 0
    if found["word"] is not None:
        slash = found["word"].index("/")
        ends = [end.end() for end in _NAME.finditer(found["word"], slash)]
        return found.start() + ends[-1] if ends else 0
    return found.end()


def _in_place_of(place: str, found: re.Match[str]) -> str:
    """Return what stands for an address or a path."""
    if found["address"]:
        return place if _PUBLIC.match(place) else "ADDRESS"
    quote = found["quote"] or ""
    name = re.split(r"[\\/]", place.strip(quote))[-1]
    kept = name if _CODE.fullmatch(name) else "PATH"
    return f"{quote}{kept}{quote}"


def redact(text: str) -> str:
    """Return ``text`` without users and passwords, and without the values of queries.

    All values go, not only those of known names such as X-Amz-Signature, sig or token: each
    service has names of its own. The names stay, so that a person sees which address it was.
    """
    if "://" in text:
        text = _DATABASE.sub(rf"\1{_HIDDEN}@", text)
        text = _USER.sub(f"{_HIDDEN}@", text)
    if "?" in text:
        text = _VALUE.sub(rf"\1{_HIDDEN}", text)
    return text


def redact_all(value: Any) -> Any:
    """Return a value of JSON with each of its texts redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redact_all(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [redact_all(entry) for entry in value]
    return value
