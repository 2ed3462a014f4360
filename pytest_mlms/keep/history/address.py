"""Addresses of histories: a file, or the URL of a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from pytest_mlms.core.text import redact, seems_url
from pytest_mlms.keep.history.errors import HistoryError

_FORMS = "a history is a file, or postgresql+psycopg://HOST/DATABASE"
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")


def address_of(address: str | Path) -> URL:
    """Return the URL of a history from what a user wrote; raises HistoryError.

    No error has the text of a URL that can't be read: its password couldn't be told from the rest.
    """
    text = str(address)
    if not text:
        raise HistoryError(f"the address of the history is empty; {_FORMS}")
    if "://" not in text and seems_url(text):
        problem = "the address of the history looks like a URL that lacks ://"
        raise HistoryError(f"{problem}; {_FORMS}, and ./NAME a file of such a name")
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise HistoryError(
            f"the URL of the history can't be read; {_FORMS}, with %40 for an @ in a password"
        ) from None
    if "@" in (url.host or ""):  # it is a part of a password, which no error may have
        raise HistoryError("the password in the URL of the history has an @; write %40 for it")
    if url.drivername in _POSTGRESQL:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database and url.database != ":memory:":
        return url
    raise HistoryError(f"{url.drivername}:// is no address of a history; {_FORMS}")


def file_of(url: URL) -> Path | None:
    """Return the file of an SQLite database; None for a server."""
    if url.get_backend_name() != "sqlite":
        return None
    assert url.database is not None  # address_of has seen to it
    return Path(url.database)


def show_address(url: URL) -> str:
    """Return the address for messages, without users and passwords."""
    file = file_of(url)
    return str(file) if file is not None else redact(url.render_as_string())
