"""Errors of histories, and those of drivers in our words."""

from __future__ import annotations

import re

from pytest_mlms.core.errors import MlmsError


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
