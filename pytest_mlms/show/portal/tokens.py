"""Tokens: read from a file or the environment, compared in constant time, kept by browsers.

A token may be for some purposes only, which stand before it: ``push:TOKEN``, ``read,run:TOKEN``.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_mlms.core.files import read_secret
from pytest_mlms.show.portal.addresses import PortalError

TOKEN_VARIABLE = "MLMS_PORTAL_TOKEN"
PURPOSES = frozenset({"predict", "push", "read", "run"})
"""Use models, push runs, read everything, start and cancel evaluations."""

SESSION_SECONDS = 12 * 3600
"""The time that a browser stays logged in."""

_SHORTEST = 16  # characters: with 64 possible ones, 96 bits
_MOST_BYTES = 1 << 16
_NONCE = 16  # characters
_MAKE = 'make one with: python -c "import secrets; print(secrets.token_urlsafe())"'


@dataclass(frozen=True)
class Token:
    """A token and what it is for."""

    value: str
    purposes: frozenset[str] = PURPOSES


@dataclass(frozen=True)
class Tokens:
    """The tokens that open the portal, and the sessions of browsers that were ended."""

    known: tuple[Token, ...] = ()
    ended: dict[str, int] = field(default_factory=dict, compare=False)
    """The times when sessions that were ended would have, by their signatures."""

    def __bool__(self) -> bool:
        return bool(self.known)

    def purposes_of(self, token: str) -> frozenset[str]:
        """Return what a token is for, nothing for one that isn't known.

        The time that it takes doesn't depend on which it is.
        """
        return _purposes((_equal(token, each.value), each) for each in self.known)

    def sign_session(self, token: str, now: float | None = None) -> str:
        """Return the cookie of a browser that has shown this token."""
        begins = time.time() if now is None else now
        ends = int(begins + SESSION_SECONDS)
        return f"{ends}.{_signature(token, ends, secrets.token_hex(_NONCE // 2))}"

    def purposes_of_session(self, cookie: str, now: float | None = None) -> frozenset[str]:
        """Return what the token is for that a cookie was signed for, nothing once it has ended."""
        text, _, signature = cookie.partition(".")
        if not text.isdecimal() or len(text) > 12:
            return frozenset()
        ends = int(text)
        present = time.time() if now is None else now
        if ends <= present or signature in self.ended:
            return frozenset()
        nonce = signature[:_NONCE]
        return _purposes(
            (_equal(signature, _signature(each.value, ends, nonce)), each) for each in self.known
        )

    def end_session(self, cookie: str, now: float | None = None) -> None:
        """Take a browser's cookie no more, until the portal ends."""
        if not self.purposes_of_session(cookie, now):
            return
        text, _, signature = cookie.partition(".")
        present = time.time() if now is None else now
        for old in [each for each, ends in self.ended.items() if ends <= present]:
            del self.ended[old]
        self.ended[signature] = int(text)


def mark_of_pusher(token: str, run: str) -> str:
    """Return what tells later whether a token has pushed a run, and nothing else of the token."""
    return hmac.new(token.encode(), f"mlms run {run}".encode(), hashlib.sha256).hexdigest()


def read_tokens(file: Path | None) -> Tokens:
    """Return the tokens of a file, one a line, else that of MLMS_PORTAL_TOKEN, else none.

    Empty lines and those that begin with # don't count. Raises PortalError.
    """
    if file is None:
        value = os.environ.get(TOKEN_VARIABLE, "").strip()
        return Tokens((_parse(value, TOKEN_VARIABLE),) if value else ())
    try:
        text = read_secret(file, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise PortalError(f"--token-file {file}: {reason}; {_MAKE}") from None
    lines = [line.strip() for line in text.splitlines()]
    values = [line for line in lines if line and not line.startswith("#")]
    if not values:
        raise PortalError(f"--token-file {file}: it has no token; {_MAKE}")
    return Tokens(tuple(_parse(value, f"--token-file {file}") for value in values))


def _parse(text: str, source: str) -> Token:
    """Return the token of a line, with the purposes before it if it has any.

    Raises PortalError, also for a token that could be guessed, or that no header can have.
    """
    before, colon, value = text.rpartition(":")
    if len(value) < _SHORTEST:
        raise PortalError(f"{source}: a token is shorter than {_SHORTEST} characters; {_MAKE}")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise PortalError(f"{source}: a token has other characters than ASCII; {_MAKE}")
    if not colon:
        return Token(value)
    purposes = frozenset(before.split(","))
    if not purposes <= PURPOSES:
        known = ", ".join(sorted(PURPOSES))
        raise PortalError(f"{source}: before a token and a colon may stand some of {known}")
    return Token(value, purposes)


def _purposes(matches: Iterator[tuple[bool, Token]]) -> frozenset[str]:
    """Return the purposes of all tokens that match; each of them is compared."""
    found: frozenset[str] = frozenset()
    for matches_token, token in matches:
        if matches_token:
            found |= token.purposes
    return found


def _signature(token: str, ends: int, nonce: str) -> str:
    """Return a nonce, by which sessions of one second differ, and the signature behind it."""
    message = f"mlms portal session {nonce} until {ends}".encode()
    return nonce + hmac.new(token.encode(), message, hashlib.sha256).hexdigest()


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
