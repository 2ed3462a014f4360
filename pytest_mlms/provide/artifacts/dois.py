"""Files of data repositories by their DOI: Zenodo, figshare, and any Dataverse.

Where a DOI leads is its owner's choice, so each answer is bounded, and leads on by https to its own
host and those below it only.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlsplit

from pytest_mlms.provide.artifacts.answers import foreign_host, resolved
from pytest_mlms.provide.artifacts.child import WebError, final_address, read_answer
from pytest_mlms.provide.artifacts.download import Download
from pytest_mlms.provide.artifacts.transfer import DownloadError, Transfer

_RESOLVER = "https://doi.org/"
_FIGSHARE = "https://api.figshare.com/v2/articles"
_HEADERS = {"User-Agent": "pytest-mlms"}  # repositories refuse that of requests
_LONGEST_ANSWER = 1 << 24  # bytes
_OTHER_FORM = (
    *(ValueError, LookupError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)
"""Errors of an answer that is none of a repository that is known."""


def retrieve_by_doi(transfer: Transfer) -> None:
    """Write the file that an address ``doi:10.NUMBER/NAME/FILE`` means."""
    doi, name = _parts(transfer.source)
    try:
        address = _address_of(doi, name, transfer.end)
    except WebError as error:
        if not error.url:
            reason = f"the DOI can't be resolved: {error}; check the network"
            raise DownloadError(reason) from error
        problem = f"{urlsplit(error.url).hostname} answered {error.status} for {doi}"
        advice = "correct the DOI; Zenodo, figshare and repositories with Dataverse are known"
        raise DownloadError(f"{problem}; {advice}") from error
    except _OTHER_FORM as error:
        problem = f"the answer for {doi} is none of a repository that is known ({error!r})"
        raise DownloadError(f"{problem}; correct the DOI") from error
    path = transfer.partial.with_name(transfer.name)
    Download(address, path, transfer.progress, transfer.limits).complete(transfer.end)


def _parts(source: str) -> tuple[str, str]:
    """Return the DOI and the file: the last part, but in Zenodo all behind the second slash."""
    prefix, name, *rest = source.removeprefix("doi:").split("/")
    if "zenodo" in name.lower():
        return f"{prefix}/{name}", "/".join(rest)
    return "/".join([prefix, name, *rest[:-1]]), rest[-1]


def _address_of(doi: str, name: str, end: float) -> str:
    """Return the address that a repository has a file at."""
    page = final_address(_RESOLVER + quote(doi), _HEADERS, end)
    host = urlsplit(page).hostname
    if host == "zenodo.org":
        return f"{page.partition('?')[0].rstrip('/')}/files/{quote(name)}?download=1"
    if host == "figshare.com":
        files = _files_of_figshare(doi, end)
    else:
        files = _files_of_dataverse(page, doi, end)
    if name not in files:
        problem = f"there is no {name!r} in {doi}"
        raise DownloadError(f"{problem}; it has {', '.join(sorted(files)[:5]) or 'no file'}")
    address = resolved(page, files[name])
    if not address or foreign_host(page, address):
        raise DownloadError(f"{host} leads to {files[name]:.200}, which is elsewhere")
    return address


def _files_of_figshare(doi: str, end: float) -> dict[str, str]:
    """Return the addresses of the files of an article, of the version in its DOI or the last."""
    (article, *_) = _json_of(f"{_FIGSHARE}?doi={quote(doi)}", end)
    version = doi.rpartition(".v")[2]
    part = f"/versions/{version}" if version.isdecimal() else ""
    answer = _json_of(f"{_FIGSHARE}/{int(article['id'])}{part}", end)
    return {str(file["name"]): str(file["download_url"]) for file in answer["files"]}


def _files_of_dataverse(page: str, doi: str, end: float) -> dict[str, str]:
    parts = urlsplit(page)
    api = f"{parts.scheme}://{parts.netloc}/api"
    answer = _json_of(f"{api}/datasets/:persistentId?persistentId=doi:{quote(doi)}", end)
    found = {}
    for entry in answer["data"]["latestVersion"]["files"]:
        file = entry["dataFile"]
        found[str(file["filename"])] = f"{api}/access/datafile/{int(file['id'])}"
    return found


def _json_of(url: str, end: float) -> Any:
    content, _ = read_answer(url, _HEADERS, end, _LONGEST_ANSWER)
    return json.loads(content)
