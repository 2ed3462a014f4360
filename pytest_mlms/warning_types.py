"""Warnings of items that did not fail. Nothing else is imported, as collection warns too."""

from __future__ import annotations

import pytest

__all__ = [
    "MlmsArtifactLost",
    "MlmsContention",
    "MlmsInconclusive",
    "MlmsKilled",
    "MlmsNotGated",
    "MlmsNotLocked",
    "MlmsWarning",
]


class MlmsWarning(pytest.PytestWarning):
    """A warning about an item that did not fail; with -W error, an error with the same text."""


class MlmsInconclusive(MlmsWarning):
    """A limit lies inside its interval, and the budget is spent."""


class MlmsKilled(MlmsWarning):
    """A candidate was killed, and ran when it was started once more."""


class MlmsNotGated(MlmsWarning):
    """A manifest has no limit, or a gate judges nothing, so that what is measured can't fail."""


class MlmsNotLocked(MlmsWarning):
    """An item has no line in the lock file that upgrades are judged against."""


class MlmsContention(MlmsWarning):
    """Other programs took the cores from what was measured."""


class MlmsArtifactLost(MlmsWarning):
    """A file of an item could not be written."""
