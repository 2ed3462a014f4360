"""Archives that tests write themselves."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path


def write_zip(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def write_tar(
    path: Path,
    members: Mapping[str, bytes],
    change: Callable[[tarfile.TarInfo], None] | None = None,
) -> Path:
    """Write a compressed tar file; ``change`` may make other things than files of its members."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if change:
                change(info)
            archive.addfile(info, io.BytesIO(data))
    return path
