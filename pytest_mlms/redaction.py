"""Removal of secrets from addresses: passwords, tokens and signatures.

Texts pass it once, where they are made: those of errors in ``MlmsError``, an item's line of the
results in ``ItemResult``, and those of libraries' logs where they are logged.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["redact", "redact_all"]

_HIDDEN = "***"
_USER = re.compile(r"""(?<=://)[^\s/?#"'<>]+@""")
_DATABASE = re.compile(r"""(postgres(?:ql)?(?:\+\w+)?://)[^\s"'<>]*@""")
"""The user of a database's URL, whose password may have what others would have to escape."""

_VALUE = re.compile(r"""([?&][\w.~%+\[\]-]+=)[^\s&#"'<>)]+""")


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
