"""Removal of secrets from addresses: passwords, tokens and signatures; and of paths and hosts.

Texts pass it once, where they are made: those of errors in ``MlmsError``, an item's line of the
results in ``ItemResult``, and those of libraries' logs where they are logged.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["anonymous", "redact", "redact_all"]

_HIDDEN = "***"
_USER = re.compile(r"""(?<=://)[^\s/?#"'<>]+@""")
_DATABASE = re.compile(r"""(postgres(?:ql)?(?:\+\w+)?://)[^\s"'<>]*@""")
"""The user of a database's URL, whose password may have what others would have to escape."""

_VALUE = re.compile(r"""([?&][\w.~%+\[\]-]+=)[^\s&#"'<>)]+""")

_ROOTS = (
    "app|builds|content|data|etc|export|github|home|media|mnt|nfs|opt|private|proc|root|run|runner"
    "|scratch|srv|tmp|Users|usr|var|work|workspace"
)
"""First folders of paths on machines. Names of layers begin with a slash, too."""

_NAME = r"\.(?=\w*[A-Za-z])\w{1,10}"
"""The end of a file's name. Layers are numbered behind a point, as in layer1.0."""

_PATH = re.compile(
    rf"""
    (?P<address>https?://[^\s'"<>|;,)\]]+)
    | (?P<quote>['"])(?:(?:file://|~/|[A-Za-z]:[\\/]|/(?:{_ROOTS})/)[^'"\n]*
        | [^'"\n]*/[^'"\n]*{_NAME})(?P=quote)
    | file://[^\s'"<>|;,)\]]+
    | (?<![\w/.:-])/(?:{_ROOTS})(?:/[^\s'"<>|:;,()\[\]]*|(?![\w/]))
    | (?<![\w.])(?:~|[A-Za-z]:)[\\/][^\s'"<>|;,()\[\]:]*
    | (?<![\w/:])[^\s'"<>|:;,()\[\]=]*/[^\s'"<>|:;,()\[\]]*{_NAME}\b(?!/)
    """,
    re.VERBOSE,
)
"""An address, or a path: quoted, as a file's address, below one of the roots or a home, or with the
name of a file.
"""

_PUBLIC = re.compile(r"https?://(?:github\.com|pypi\.org)/")
"""Addresses that are no one's own."""

_CODE = re.compile(r"[\w.+-]+\.(?:py|cc|cpp|cxx|cu|cuh|c|h|hpp|rs|so[\d.]*|dylib|dll)")
"""Files of programs, whose names say what failed and not whose machine it was."""


def anonymous(text: str, host: str = "") -> str:
    """Return ``text`` without secrets, paths, private addresses, and the name of a host.

    A path is replaced by PATH; of a source file or a library its name stays. It is recognised by
    its form: what is written here may have happened on another machine.
    """
    text = _PATH.sub(_without_place, redact(text))
    if host:
        text = re.sub(rf"(?<!\w){re.escape(host)}(?!\w)", "HOST", text)
    return text


def _without_place(found: re.Match[str]) -> str:
    """Return what stands for an address or a path."""
    if found["address"]:
        return found[0] if _PUBLIC.match(found[0]) else "ADDRESS"
    quote = found["quote"] or ""
    name = re.split(r"[\\/]", found[0].strip(quote))[-1]
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
