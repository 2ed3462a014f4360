"""The address of a portal that runs are pushed to, and the token for it."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import read_secret
from pytest_mlms.core.text import redact

TOKEN_VARIABLE = "MLMS_PUSH_TOKEN"

_LONGEST = 4096  # bytes of a token file


def read_url(text: str) -> str:
    """Return the address of a portal; raises MlmsError."""
    if "@" in text or "?" in text:
        raise MlmsError(f"{redact(text)}: leave the secret out; {TOKEN_VARIABLE} has the token")
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of the host's brackets or the port
        is_address = False
    if not is_address or not text.isascii() or not text.isprintable() or " " in text:
        raise MlmsError(f"{text!r} is no address of a portal; write https://portal.example.org")
    return text.rstrip("/")


def exposes_tokens(url: str) -> bool:
    """Return whether others can read a token on its way: by http to another host."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    return parts.scheme == "http" and not is_here


def read_token(file: Path | None) -> str:
    """Return the token of a file, else of MLMS_PUSH_TOKEN, else ""; raises MlmsError."""
    if file is None:
        return _checked(os.environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE)
    try:
        return _checked(read_secret(file, _LONGEST).decode("latin-1"), str(file))
    except OSError as error:
        raise MlmsError(f"{file}: {error.strerror}; name the file of the token") from None


def _checked(text: str, place: str) -> str:
    """Return the token that a text is, which a header of a request can have; raises MlmsError."""
    token = text.strip()
    if not token.isascii() or not token.isprintable():
        raise MlmsError(f"{place}: it is no token, which is a line of ASCII; write it anew")
    return token
