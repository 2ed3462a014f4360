"""The address of a portal that runs are pushed to, and the token for it."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from pytest_mlms.errors import MlmsError
from pytest_mlms.files import read_secret

__all__ = ["TOKEN_VARIABLE", "exposes_tokens", "read_token", "read_url"]

TOKEN_VARIABLE = "MLMS_PUSH_TOKEN"

_LONGEST = 4096  # bytes of a token file


def read_url(text: str) -> str:
    """Return the address of a portal; raises MlmsError."""
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query:
        raise MlmsError(f"{text}: leave the secret out; {TOKEN_VARIABLE} has the token")
    if parts.scheme not in ("http", "https") or not parts.hostname:
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
    """Return the token of a file, else that of MLMS_PUSH_TOKEN, else ""; raises MlmsError."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip()
    try:
        return read_secret(file, _LONGEST).decode("ascii").strip()
    except OSError as error:
        raise MlmsError(f"{file}: {error.strerror}; name the file of the token") from None
    except UnicodeDecodeError:
        raise MlmsError(f"{file}: it is no token; name another file") from None
