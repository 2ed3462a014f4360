"""Links in answers of servers: where they may lead."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

__all__ = ["foreign_host", "is_safer_or_alike", "resolved"]


def is_safer_or_alike(page: str, url: str) -> bool:
    """Return whether a page may lead to an address by its scheme: from https to https alone."""
    mine, theirs = urlsplit(page).scheme, urlsplit(url).scheme
    return theirs in {"https": ("https",), "http": ("https", "http")}.get(mine, (theirs,))


def resolved(page: str, address: str) -> str:
    """Return an address of a page in full, with the page's user on the page's own host.

    An address that the page may not lead to is empty.
    """
    try:
        url = urljoin(page, address)
        mine, theirs = urlsplit(page), urlsplit(url)
    except ValueError:  # such as http://[
        return ""
    if not is_safer_or_alike(page, url):
        return ""
    is_same_host = theirs.netloc and theirs.netloc == mine.netloc.rpartition("@")[2]
    if "@" in mine.netloc and is_same_host and theirs.scheme == mine.scheme:
        return theirs._replace(netloc=mine.netloc).geturl()
    return url


def foreign_host(page: str, url: str) -> str:
    """Return the host of an address that is neither its page's nor below that, else nothing.

    Which other hosts are of one owner no name tells, as for those of co.uk. Files of this machine
    may lead anywhere.
    """
    mine, theirs = urlsplit(page).hostname, urlsplit(url).hostname or ""
    return "" if mine is None or f".{theirs}".endswith(f".{mine}") else theirs
