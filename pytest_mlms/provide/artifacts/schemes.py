"""Retrieval of remote files by the schemes of their addresses."""

from __future__ import annotations

from pathlib import Path

from pytest_mlms.core.records import Artifact, DownloadLimits
from pytest_mlms.manifest.sources import scheme_of
from pytest_mlms.provide.artifacts.child import retrieve_by_child
from pytest_mlms.provide.artifacts.dois import retrieve_by_doi
from pytest_mlms.provide.artifacts.download import Download
from pytest_mlms.provide.artifacts.packages import retrieve_from_package
from pytest_mlms.provide.artifacts.transfer import ReportProgress, Retrieve, Transfer

_RETRIEVERS: dict[str, Retrieve] = {
    "pypi": retrieve_from_package,
    "hf": retrieve_by_child,
    "s3": retrieve_by_child,
    "gs": retrieve_by_child,
    "az": retrieve_by_child,
    "doi": retrieve_by_doi,
}
"""Scheme -> completion of the partial file; http:// and https:// are the downloader's own."""


def download(
    artifact: Artifact, path: Path, cache: Path, progress: ReportProgress, limits: DownloadLimits
) -> None:
    """Download an artifact to ``path``, in a folder of its own, and check its digest.

    The caller holds a lock on the folder. Raises DownloadError and OSError.
    """
    retriever = _RETRIEVERS.get(scheme_of(artifact.source))

    def retrieve(end: float) -> None:
        assert retriever, "otherwise it is not called"
        partial = path.with_name("partial")
        transfer = Transfer(artifact, partial, cache, path.name, progress, limits, end)
        retriever(transfer)

    own = retrieve if retriever else None
    Download(artifact.source, path, progress, limits, own).run(artifact.sha256)
