"""Packed runs, as they are pushed to a portal."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.histories import run_lines

__all__ = ["pack", "pack_run", "results_of"]


def results_of(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the content of results.jsonl."""
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def pack_run(number: int = 0, files: Mapping[str, bytes] | None = None, **fields: Any) -> bytes:
    """Return the archive of a night's run; ``fields`` are those of its item."""
    lines = list(run_lines(number, **fields))
    return pack({"results.jsonl": results_of(lines), **(files or {})})


def pack(files: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    """Return a tar.gz of files by name; a TarInfo is a member without content, such as a link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
