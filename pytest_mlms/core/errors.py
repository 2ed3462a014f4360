"""User-fixable errors.

They are raised where the problem is found, and the plugin shows their text without a traceback.
Secrets of addresses are removed from it here, once for the terminal, JUnit and the results.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "AgentError",
    "ArtifactError",
    "Crashed",
    "DatasetError",
    "DeviceInUse",
    "InvalidRun",
    "ManifestError",
    "MlmsError",
    "OutputError",
    "StackError",
    "Unavailable",
    "untrusted",
]


class MlmsError(Exception):
    """The base of all; its text tells what was expected, what was found, and what to do.

    What a user, a file or an agent put into the text can't command the terminal that shows it.
    ``side`` is the side of an upgrade that failed, "a" or "b", if one did, and ``killed`` whether
    its agent ended by SIGKILL, which the kernel or a person may send to any process.
    """

    side = ""
    killed = False

    def __init__(self, text: object = "") -> None:
        from pytest_mlms.core.text import redact, visible

        super().__init__(visible(redact(str(text))))


class ManifestError(MlmsError):
    """All errors of a manifest, a line each."""


class ArtifactError(MlmsError):
    """A file is missing, can't be fetched, or isn't the one that the manifest means."""


class DatasetError(MlmsError):
    """A dataset doesn't fit its manifest."""


class AgentError(MlmsError):
    """An agent died, hung, refused a request, or sent something else than a reply."""


class StackError(MlmsError):
    """A stack doesn't exist as it is declared, or can't be made."""


class OutputError(MlmsError):
    """A model's signature or outputs are not what the manifest says."""


class Crashed(MlmsError):
    """The candidate of an upgrade fails where the baseline does not."""


class InvalidRun(MlmsError):
    """A measurement was disturbed, or is not the one that was asked for.

    For example it ran on another device, with other threads or clocks, or beside other programs.
    """


def untrusted(problems: Iterable[str]) -> str:
    """Return the text on a measurement that can't be trusted for some reasons."""
    reasons = "; ".join(problems)
    return f"what was measured can't be trusted; {reasons}; run it again where that isn't so"


class Unavailable(MlmsError):
    """This machine doesn't have what an item needs: a skip, or with --mlms-strict a failure."""


class DeviceInUse(Unavailable):
    """Another process holds the device, or this one does and would wait for itself."""
