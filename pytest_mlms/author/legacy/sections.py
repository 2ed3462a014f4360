"""Mappings of a legacy manifest, whose keys and values are checked as they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pytest_mlms.author.legacy.records import Note, UnclearManifest
from pytest_mlms.core.text import close_words
from pytest_mlms.manifest.yaml12 import Document, Path, WrittenFloat

_LIKE = 0.85  # of difflib: one or two letters of a key
_MISTYPED = "is not of its type"


class Section:
    """A mapping of a document, with the lines of its keys.

    A key that isn't known and is close to one that is missing stands for that one.
    """

    def __init__(
        self, document: Document, path: Path, content: Any, known: Collection[str]
    ) -> None:
        self._document = document
        self._path = path
        if content is None:
            content = {}
        if not isinstance(content, Mapping):
            name = path[-1] if path else "the file"
            raise UnclearManifest(
                document.line(path), f"{name} has no keys; write 'key: value'", _MISTYPED
            )
        self._corrected = dict(_misspelt(content, known))
        self._content = {self._corrected.get(key, key): value for key, value in content.items()}
        self._written = {right: wrong for wrong, right in self._corrected.items()}

    def __contains__(self, key: str) -> bool:
        return self._content.get(key) is not None

    def has(self, key: str) -> bool:
        """Return whether a key is written, even if it is empty."""
        return key in self._content

    def line(self, key: str = "") -> int:
        """Return the line of a key, or of the section."""
        written = self._written.get(key, key)
        return self._document.line((*self._path, written) if key else self._path)

    def path(self, key: str) -> Path:
        """Return the path of a key."""
        return (*self._path, key)

    def misspelt(self) -> Iterator[Note]:
        """Yield a warning for each key that stands for another one."""
        for wrong, right in self._corrected.items():
            line = self._document.line((*self._path, wrong))
            yield Note(line, f"unknown key {wrong!r}; did you mean {right!r}? It is read as that")

    def text(self, key: str) -> str:
        """Return a text, or a number as it is written; "" where there is none."""
        value = self._content.get(key)
        if value is None:
            return ""
        if isinstance(value, WrittenFloat):
            return value.text
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise self._mistyped(key, "a text")
        return str(value)

    def layer(self, key: str) -> str | int | None:
        """Return the name of a layer, or its index; None where there is neither."""
        value = self._content.get(key)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise self._mistyped(key, "a name or an index")
        if isinstance(value, int) and value < 0:
            raise self._mistyped(key, "an index of 0 or more")
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    def integer(self, key: str) -> int | None:
        """Return a whole number; None where there is none."""
        value = self._content.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._mistyped(key, "a whole number")
        return value

    def flag(self, key: str) -> bool:
        """Return True or False; False where it isn't there."""
        value = self._content.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self._mistyped(key, "true or false")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers, or a number as a list of one; () where there is none."""
        value = self._content.get(key)
        if value is None:
            return ()
        values = value if isinstance(value, list) else [value]
        for number in values:
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise self._mistyped(key, "a number or a list of numbers")
        return tuple(float(number) for number in values)

    def sizes(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers of 1 or more; () where there is none."""
        numbers = self.numbers(key)
        for number in numbers:
            if number < 1 or number != int(number):
                raise self._mistyped(key, "a list of sizes")
        return tuple(int(number) for number in numbers)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, or a text as a list of one; () where there is none."""
        value = self._content.get(key)
        if value is None:
            return ()
        values: Sequence[Any] = value if isinstance(value, list) else [value]
        for text in values:
            if not isinstance(text, str):
                raise self._mistyped(key, "a list of texts")
        return tuple(values)

    def section(self, key: str, known: Collection[str]) -> Section:
        """Return the section under a key, an empty one where there is none."""
        written = self._written.get(key, key)
        return Section(self._document, self.path(written), self._content.get(key), known)

    def sections(self, key: str, known: Collection[str]) -> list[Section]:
        """Return the sections of a list under a key."""
        value = self._content.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._mistyped(key, "a list")
        path = self.path(self._written.get(key, key))
        return [
            Section(self._document, (*path, number), part, known)
            for number, part in enumerate(value)
        ]

    def _mistyped(self, key: str, expected: str) -> UnclearManifest:
        text = f"{self._written.get(key, key)} is not {expected}; correct it"
        return UnclearManifest(self.line(key), text, _MISTYPED)


def _misspelt(content: Mapping[str, Any], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each unknown key, with the known one that it stands for."""
    missing = [key for key in known if key not in content]
    for key in content:
        if key in known:
            continue
        close = close_words(key, missing, likeness=_LIKE)
        if close:
            missing.remove(close[0])
            yield key, close[0]


TOP = (
    "name",
    "version",
    "framework",
    "container",
    "description",
    "references",
    "license",
    "hidden",
    "modality",
    "inputs",
    "output",
    "outputs",
    "model",
    "preprocess",
    "postprocess",
    "before_preprocess",
    "before_postprocess",
    "attributes",
)
STUB = (
    "name",
    "version",
    "framework",
    "type",
    "input",
    "output",
    "dataset_name",
    "features_url",
    "trained_url",
)
"""Keys of the stubs of 2017."""

FRAMEWORK = ("name", "version")
TYPED = ("type", "description", "parameters")
"""Keys of an input and an output."""

INPUT_PARAMETERS = (
    "element_type",
    "input_layer",
    "layer_name",
    "layout",
    "color_mode",
    "dimensions",
    "mean",
    "scale",
    "max_dimension",
    "min_dimension",
    "crop_dimensions",
    "crop_method",
    "crop_ratio",
    "keep_aspect_ratio",
    "input_type",
    "url",
)
LAYERS = (
    "probabilities_layer",
    "boxes_layer",
    "classes_layer",
    "masks_layer",
    "layer_name",
    "output_layer",
)
CORNERS = ("ymin_index", "xmin_index", "ymax_index", "xmax_index")
OUTPUT_PARAMETERS = (
    *LAYERS,
    *CORNERS,
    "element_type",
    "probabilities_transform",
    "features_url",
    "features_checksum",
    "dimensions",
    "scale_width",
    "scale_height",
    "background_index",
)
MODEL = (
    "base_url",
    "graph_path",
    "weights_path",
    "is_archive",
    "graph_checksum",
    "weights_checksum",
    "features_path",
    "features_checksum",
    "onnx_url",
    "onnx_checksum",
    "model_type",
)
CLAIMED = ("top1", "top5", "Top1", "Top5", "mAP", "Box AP")
"""Keys of attributes that claim an accuracy."""
