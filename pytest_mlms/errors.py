"""What goes wrong in a way that a user can mend.

Raised low, rendered once by the plugin, never with a traceback.
"""

__all__ = [
    "AgentError",
    "ArtifactError",
    "DatasetError",
    "InvalidRun",
    "ManifestError",
    "MlmsError",
    "OutputError",
    "StackError",
    "Unavailable",
]


class MlmsError(Exception):
    """The base of all; its text says what was expected, what was found, and what to do."""


class ManifestError(MlmsError):
    """A manifest's faults, all of them, a line each."""


class ArtifactError(MlmsError):
    """A file that is missing, can't be fetched, or isn't the one that the manifest means."""


class DatasetError(MlmsError):
    """A dataset that doesn't fit the manifest."""


class AgentError(MlmsError):
    """The agent died, hung, refused a request or sent something else than a reply."""


class StackError(MlmsError):
    """A stack that can't be had as it is declared, or can't be made."""


class OutputError(MlmsError):
    """A model whose signature or outputs are not what the manifest says."""


class InvalidRun(MlmsError):
    """What is measured is not what was asked for, or was disturbed.

    Another device, threads, clocks, neighbours.
    """


class Unavailable(MlmsError):
    """What this machine lacks: a skip, or a failure under --mlms-strict."""
