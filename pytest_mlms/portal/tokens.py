"""Tokens: read from a file or the environment, compared in constant time, kept by browsers."""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.files import read_regular
from pytest_mlms.portal.addresses import PortalError

__all__ = ["SESSION_SECONDS", "TOKEN_VARIABLE", "Tokens", "read_tokens"]

TOKEN_VARIABLE = "MLMS_PORTAL_TOKEN"
SESSION_SECONDS = 12 * 3600
"""The time that a browser stays logged in."""

_SHORTEST = 16  # characters: with 64 possible ones, 96 bits
_MOST_BYTES = 1 << 16
_MAKE = 'make one with: python -c "import secrets; print(secrets.token_urlsafe())"'


@dataclass(frozen=True)
class Tokens:
    """The tokens that open the portal; each of them opens all of it."""

    values: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.values)

    def accepts(self, token: str) -> bool:
        """Return whether a token is one of these, in a time that doesn't depend on which."""
        matches = [_equal(token, value) for value in self.values]
        return any(matches)

    def sign_session(self, token: str, now: float | None = None) -> str:
        """Return the cookie of a browser that has shown this token."""
        begins = time.time() if now is None else now
        ends = int(begins + SESSION_SECONDS)
        return f"{ends}.{_signature(token, ends)}"

    def accepts_session(self, cookie: str, now: float | None = None) -> bool:
        """Return whether a cookie was signed for one of the tokens, and has not ended."""
        text, _, signature = cookie.partition(".")
        if not text.isdecimal() or len(text) > 12:
            return False
        ends = int(text)
        matches = [_equal(signature, _signature(value, ends)) for value in self.values]
        present = time.time() if now is None else now
        return any(matches) and ends > present


def read_tokens(file: Path | None) -> Tokens:
    """Return the tokens of a file, one a line, else that of MLMS_PORTAL_TOKEN, else none.

    Empty lines and those that begin with # don't count. Raises PortalError.
    """
    if file is None:
        return _token_of_environment()
    try:
        text = read_regular(file, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise PortalError(f"--token-file {file}: {reason}; {_MAKE}") from None
    lines = [line.strip() for line in text.splitlines()]
    values = [line for line in lines if line and not line.startswith("#")]
    if not values:
        raise PortalError(f"--token-file {file}: it has no token; {_MAKE}")
    for value in values:
        _check(value, f"--token-file {file}")
    return Tokens(tuple(values))


def _token_of_environment() -> Tokens:
    value = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not value:
        return Tokens()
    _check(value, TOKEN_VARIABLE)
    return Tokens((value,))


def _check(value: str, source: str) -> None:
    """Refuse a token that could be guessed, or that no header can have; raises PortalError."""
    if len(value) < _SHORTEST:
        raise PortalError(f"{source}: a token is shorter than {_SHORTEST} characters; {_MAKE}")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise PortalError(f"{source}: a token has other characters than ASCII; {_MAKE}")


def _signature(token: str, ends: int) -> str:
    message = f"mlms portal session until {ends}".encode()
    return hmac.new(token.encode(), message, hashlib.sha256).hexdigest()


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
