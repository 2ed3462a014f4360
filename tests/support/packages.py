"""Indexes of Python packages on a local server, and the packages in them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any

from tests.support.fileserver import FileServer


def wheel_of(files: Mapping[str, bytes]) -> bytes:
    """Return a wheel with these files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def sdist_of(top: str, files: Mapping[str, bytes]) -> bytes:
    """Return a source distribution whose set-up would write a file, with a link in it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


class Index:
    """The simple API of an index at ``url``, as JSON or, where ``as_html``, as a page."""

    def __init__(self, server: FileServer, root: str = "/simple", as_html: bool = False) -> None:
        self._server = server
        self._root = root
        self._as_html = as_html
        self._entries: dict[str, list[dict[str, Any]]] = {}
        self.url = server.url(root)

    def add(self, package: str, name: str, data: bytes, yanked: str | None = None) -> str:
        """Offer a file of a package; return its sha256."""
        path = f"/files/{name}"
        digest = hashlib.sha256(data).hexdigest()
        self._server.files[path] = data
        entry = {"filename": name, "url": path, "hashes": {"sha256": digest}, "size": len(data)}
        entry["yanked"] = False if yanked is None else yanked
        entries = self._entries.setdefault(package, [])
        entries.append(entry)
        self._write(f"{self._root}/{package}/", entries)
        return digest

    def _write(self, path: str, entries: list[dict[str, Any]]) -> None:
        if self._as_html:
            self._server.files[path] = "".join(map(_link, entries)).encode()
            self._server.types[path] = "text/html"
        else:
            page = {"meta": {"api-version": "1.1"}, "files": entries}
            self._server.files[path] = json.dumps(page).encode()
            self._server.types[path] = "application/vnd.pypi.simple.v1+json"


def _link(entry: Mapping[str, Any]) -> str:
    yanked = "" if entry["yanked"] is False else f' data-yanked="{entry["yanked"]}"'
    url = f"{entry['url']}#sha256={entry['hashes']['sha256']}"
    return f'<a href="{url}"{yanked}>{entry["filename"]}</a><br>'
