"""Files of data repositories by their DOI, which pooch resolves: Zenodo, figshare and Dataverse."""

from __future__ import annotations

import pooch.downloaders
import requests
from pooch.utils import parse_url

from pytest_mlms.artifacts.download import Download
from pytest_mlms.artifacts.transfer import DownloadError, Transfer

__all__ = ["retrieve_by_doi"]

_SILENCE = 30  # seconds without a byte before a connection counts as broken


def retrieve_by_doi(transfer: Transfer) -> None:
    """Write the file that an address ``doi:10.NUMBER/NAME/FILE`` means."""
    address = _address_of(transfer.source)
    path = transfer.partial.with_name(transfer.name)
    Download(address, path, transfer.progress, transfer.limits).complete(transfer.end)


def _address_of(source: str) -> str:
    """Return the address that a repository has a file at; raises DownloadError."""
    parts = parse_url(source)
    doi = parts["netloc"]
    headers = pooch.downloaders.REQUESTS_HEADERS
    try:
        repository = pooch.downloaders.doi_to_repository(doi, headers=headers, timeout=_SILENCE)
        address: str = repository.download_url(parts["path"].lstrip("/"))
    except requests.HTTPError as error:
        status = error.response.status_code
        problem = f"the DOI's server answered {status} for {doi}"
        raise DownloadError(f"{problem}; correct the DOI") from error
    except requests.RequestException as error:
        raise DownloadError(f"the DOI can't be resolved: {error}; check the network") from error
    except (ValueError, KeyError, TypeError) as error:
        problem = str(error) if isinstance(error, ValueError) else f"unknown answer: {error!r}"
        raise DownloadError(f"{problem}; correct the DOI and the name of the file") from error
    return address
