"""Answers of servers: where their links may lead, and parts of no negative size."""

from __future__ import annotations

import http.client
from urllib.parse import urljoin, urlsplit

_ALLOWED = {"https": ("https",), "http": ("https", "http")}
"""Scheme of a page -> the schemes that it may lead to; pages of other schemes may lead anywhere."""


def is_safer_or_alike(page: str, url: str) -> bool:
    """Return whether a page may lead to an address by its scheme: from https to https alone."""
    allowed = _ALLOWED.get(urlsplit(page).scheme)
    return allowed is None or urlsplit(url).scheme in allowed


def resolved(page: str, address: str) -> str:
    """Return an address of a page in full, with the page's user on the page's own host.

    An address that the page may not lead to is empty.
    """
    try:
        url = urljoin(page, address)
        mine = urlsplit(page)
        theirs = urlsplit(url)
    except ValueError:  # such as http://[
        return ""
    if "\\" in theirs.netloc or not is_safer_or_alike(page, url):  # clients end the host there
        return ""
    _, user_ends, host = mine.netloc.rpartition("@")
    is_same_host = (theirs.scheme, theirs.netloc) == (mine.scheme, host)
    if user_ends and host and is_same_host:
        return theirs._replace(netloc=mine.netloc).geturl()
    return url


def foreign_host(page: str, url: str) -> str:
    """Return the host of an address where it is neither its page's nor below that, else nothing.

    No name tells which other hosts have one owner, as co.uk shows. Files of this machine may lead
    anywhere.
    """
    mine = urlsplit(page).hostname
    theirs = urlsplit(url).hostname or ""
    if mine is None or f".{theirs}".endswith(f".{mine}"):
        return ""
    return theirs


class PlainResponse(http.client.HTTPResponse):
    """An answer that is broken where a chunk of it has a negative size."""

    def _safe_read(self, amt: int) -> bytes:
        if amt < 0:
            raise http.client.IncompleteRead(b"")
        read: bytes = super()._safe_read(amt)  # type: ignore[misc]
        return read
