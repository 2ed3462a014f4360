"""Errors of histories and those of drivers in our words, and the addresses that they show.

An address is a file, or the URL of a PostgreSQL database."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import redact, seems_url


class HistoryError(MlmsError):
    """A history can't be opened, read or written."""


class HistoryUnavailable(HistoryError):
    """The history can't be used now; what is to be added to it can be added later."""


class HistoryDamaged(HistoryUnavailable):
    """The file of the history is damaged; a rebuild makes another one."""


class HistoryOutdated(HistoryUnavailable):
    """An older version made the history; a rebuild makes its tables anew."""


class HistoryConflict(HistoryUnavailable):
    """Another writer was in the way of a transaction, which can be tried again."""


_DAMAGED = re.compile("malformed|not a database|disk image|corrupt|decode to UTF-8", re.IGNORECASE)
_CONFLICTS = ("40001", "40P01")  # serialization failure, deadlock: PostgreSQL's SQLSTATE
_STARTING = re.compile("starting up|shutting down|recovery|too many|connection slots")
_REFUSED = re.compile(r"FATAL:\s*(.*)")


def damaged(what: str) -> HistoryDamaged:
    """Return the error of a value in a table that no run of ours has put there."""
    advice = "run 'mlms history rebuild' with the folder of your results"
    return HistoryDamaged(f"the history is damaged ({what}); {advice}")


def translate(where: str, error: BaseException) -> HistoryError:
    """Return a driver's error in our words; ``where`` is the history's address without secrets."""
    text = _first_line(error)
    if _DAMAGED.search(text):
        return HistoryDamaged(
            f"{where}: the history is damaged ({text}); run 'mlms history rebuild' with the "
            f"folder of your results"
        )
    if getattr(error, "sqlstate", None) in _CONFLICTS:
        return HistoryConflict(f"{where}: {text}; try again")
    if "is locked" in text:
        return HistoryUnavailable(f"{where}: another process writes to the history; try again")
    refused = _REFUSED.search(str(error))
    if refused and not _STARTING.search(refused.group(1)):
        return HistoryError(f"{where}: {refused.group(1)}; correct the address")
    return HistoryUnavailable(f"{where}: {text}")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


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
