"""Artifacts as downloads: files of strangers, which browsers must not take for pages of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from pytest_mlms.show.portal.run_index import RunIndex

_CHUNK = 1 << 18  # bytes

_SHOWN = {
    ".csv": "text/plain; charset=utf-8",
    ".json": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
}
"""Suffixes of files that a browser may show; all others, such as .html and .svg, are saved."""

_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"


def serve_file(index: RunIndex, run: str, path: str) -> Response:
    """Return the answer that has a file of a run; raises HTTPException where it is not there."""
    try:
        file = index.open_file(run, path)
    except OSError:
        raise HTTPException(404, "the file is not there any more") from None
    name = PurePosixPath(path).name
    suffix = PurePosixPath(path).suffix.lower()
    shown = _SHOWN.get(suffix)
    place = "inline" if shown else "attachment"
    headers = {
        "Content-Disposition": f"{place}; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Security-Policy": _POLICY,
    }
    kind = shown or "application/octet-stream"
    return StreamingResponse(_content(file), media_type=kind, headers=headers)


def _content(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        left = os.fstat(file.fileno()).st_size  # a log may grow meanwhile
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk
