"""Messages between the controller and its workers, besides xdist's.

Each message is a named tuple of plain values, because execnet transfers nothing else. The side
channel (``side_channel.py``) sends the name of its class and its fields.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.provide.host.matching import Needs

RefusedOutcome: TypeAlias = Literal["skip", "fail", "error"]
"""How a worker reports an item that no host can run."""


# From a worker to the controller


class WorkerAnnouncement(NamedTuple):
    """The capabilities of the worker's host, and the needs of the collected items.

    ``needs`` are the different needs. ``rows`` has for each item its index in ``needs``, or -1 for
    a test that is no item of a manifest. Sent after collection, before xdist sends the ids.
    """

    capabilities: Capabilities
    needs: list[Needs]
    rows: list[int]


class Heartbeat(NamedTuple):
    """The worker is alive. Sent every two seconds."""


class InterruptedResult(NamedTuple):
    """The result of an item that Ctrl-C interrupted, for which there is no report."""

    result: dict[str, Any]


class ArtifactRequest(NamedTuple):
    """A request for a local file of a manifest.

    ``manifest`` is a path in the workspace, ``source`` is relative to the manifest's folder. The
    answer is ArtifactFound or ArtifactRefused.
    """

    manifest: str
    source: str


class DownloadRequest(NamedTuple):
    """A request for the content of the artifact that was found last.

    The answer is a series of ArtifactChunk and an ArtifactEnd, or ArtifactRefused.
    """


class FileBegin(NamedTuple):
    """A file of a result follows; ``path`` is relative to the folder of the run."""

    path: str


class FileChunk(NamedTuple):
    """The next bytes of the file of a result."""

    data: bytes


class FileEnd(NamedTuple):
    """The file of a result is complete, or ``error`` says why it could not be read."""

    sha256: str
    error: str


# From the controller to a worker


class ItemRefusal(NamedTuple):
    """The worker has to report an item as skipped, failed or an error, without running it."""

    item: int
    reason: str
    outcome: RefusedOutcome


class ItemRetry(NamedTuple):
    """The worker runs an item that another worker lost; ``earlier`` says how."""

    item: int
    attempt: int
    earlier: str


class Interrupt(NamedTuple):
    """The worker has to end as by Ctrl-C."""


class ArtifactFound(NamedTuple):
    """The controller has the artifact that was asked for."""

    sha256: str
    name: str


class ArtifactRefused(NamedTuple):
    """The controller can't send the artifact that was asked for."""

    reason: str


class ArtifactChunk(NamedTuple):
    """The next bytes of an artifact."""

    data: bytes


class ArtifactEnd(NamedTuple):
    """The artifact is complete."""


class FileStored(NamedTuple):
    """The controller has stored the file of a result; the worker may remove its own copy."""

    path: str


FromWorker: TypeAlias = (
    WorkerAnnouncement
    | Heartbeat
    | InterruptedResult
    | ArtifactRequest
    | DownloadRequest
    | FileBegin
    | FileChunk
    | FileEnd
)

FromController: TypeAlias = (
    ItemRefusal
    | ItemRetry
    | Interrupt
    | ArtifactFound
    | ArtifactRefused
    | ArtifactChunk
    | ArtifactEnd
    | FileStored
)

Message: TypeAlias = FromWorker | FromController

MESSAGES: dict[str, type[Message]] = {kind.__name__: kind for kind in Message.__args__}
"""Name on the wire -> class of the message."""
