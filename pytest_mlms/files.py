"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacing", "write_atomically"]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, and rename it to ``path`` where the block succeeds.

    Readers see the old file or the new one, never a part. Where the block fails, the temporary file
    is removed and ``path`` is left as it was. The folder must exist. The name can't be guessed: the
    folder may be one where others put links.
    """
    token = os.urandom(8).hex()
    temporary = path.with_name(f".{path.name}.{token}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write ``data`` to ``path``, as ``replacing`` does; text is UTF-8."""
    content = data.encode() if isinstance(data, str) else data
    with replacing(path) as temporary:
        temporary.write_bytes(content)
