"""Compose the datasets of the zoo: python -m manifests.zoo.compose [--check] [NAME…].

They are in the repository, as their digests would differ between versions of Pillow and zlib. With
--check, they are composed and compared with those that are there.
"""

from __future__ import annotations

import argparse
import io
import sys
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manifests.zoo.compose import file_types, notes, people, photographs, plates, speech, text_lines

Arrays = Mapping[str, NDArray[np.generic]]
Content = Arrays | bytes
"""The arrays of an .npz file, or a .zip file."""

_MANIFESTS = Path(__file__).parents[2]
_DATASETS: dict[str, Callable[[], Content]] = {
    "file-type/files.npz": file_types.compose,
    "image-classification/lines.npz": text_lines.compose_lines,
    "image-classification/pages.npz": text_lines.compose_orientations,
    "ocr/words.npz": text_lines.compose_words,
    "semantic-segmentation/pages.npz": text_lines.compose_pages,
    "semantic-segmentation/people.zip": people.compose_masks,
    "object-detection/faces.zip": people.compose_faces,
    "speech-detection/frames.npz": speech.compose_frames,
    "speech-recognition/sentences.zip": speech.compose_sentences,
    "object-detection/plates.zip": plates.compose_plates,
    "image-enhancement/photographs.npz": partial(photographs.compose, 7),
    "image-enhancement/photographs_wide.npz": partial(photographs.compose, 18),
    "music-transcription/chords.npz": notes.compose,
}


def main() -> int:
    """Write or check the datasets; return 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, if none is named")
    options = parser.parse_args()
    different = 0
    for name in options.names or _DATASETS:
        content = _DATASETS[name]()
        path = _MANIFESTS / name
        if not options.check:
            _write(content, path)
            print(f"{name}: {path.stat().st_size:,} bytes")
        elif not _is_equal(content, path):
            different += 1
            print(f"{name} differs from what is composed of the packages")
    return 1 if different else 0


def _write(content: Content, path: Path) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.savez_compressed(path, **content)  # type: ignore[arg-type]


def _is_equal(content: Content, path: Path) -> bool:
    """Return whether a dataset has the same content, however it is compressed."""
    if isinstance(content, bytes):
        return _members(io.BytesIO(content)) == _members(io.BytesIO(path.read_bytes()))
    with np.load(path) as kept:
        same = [np.array_equal(kept[name], array) for name, array in content.items()]
        return all(same) and set(kept) == set(content)


def _members(data: io.BytesIO) -> dict[str, bytes]:
    """Return the files of an archive by name."""
    with zipfile.ZipFile(data) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


if __name__ == "__main__":
    sys.exit(main())
