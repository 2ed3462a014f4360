"""The Python that a manifest embeds, run where its user allows it.

It is that of MLHarness: ``preprocess(ctx, data)`` gets the index of an element as a text, finds the
path of its file as ``dataset[int(data)]``, and returns an array or a tuple of arrays, without the
axis of the batch. ``postprocess(ctx, data)`` gets the list of the model's outputs for a batch.
Both texts run in one module, as if it were ``__main__``.
"""

import os
import tempfile
import traceback
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

_KINDS = "biuf"  # of numpy: truth values and numbers


class Text(NamedTuple):
    """A text of Python, and the number of the line of its file that is before its first one."""

    text: str
    line: int


class Element(NamedTuple):
    """An element of the dataset: its number, the end of its file's name, and the file's content."""

    number: int
    suffix: str
    content: Any


class CodeError(Exception):
    """An error of the embedded code, with the line of the manifest."""


class _Files:
    """The paths of the files of the elements that are being prepared, by their indices."""

    def __init__(self) -> None:
        self.paths: Dict[int, str] = {}

    def __getitem__(self, index: int) -> str:
        if index not in self.paths:
            raise IndexError("element %r is not that of this call, data" % (index,))
        return self.paths[index]


class EmbeddedCode:
    """The functions of a manifest at ``path``; raises CodeError where its texts can't be run."""

    def __init__(self, path: str, texts: Sequence[Text]) -> None:
        self._path = path
        self._files = _Files()
        self._space: Dict[str, Any] = {"__name__": "__main__", "dataset": self._files}
        for text in texts:
            self._run(text)

    def _run(self, text: Text) -> None:
        try:
            code = compile("\n" * text.line + text.text, self._path, "exec")
            exec(code, self._space)
        except (Exception, SystemExit) as error:
            raise self._located(error, text.line) from None

    def preprocess(self, elements: Sequence[Element]) -> List[Any]:
        """Return the inputs of a batch, with an axis of the batch in front."""
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for element in elements:
                path = os.path.join(folder, "%d%s" % (element.number, element.suffix))
                with open(path, "wb") as file:
                    file.write(element.content)
                self._files.paths = {element.number: path}
                found = self._call("preprocess", str(element.number))
                rows.append(found if isinstance(found, tuple) else (found,))
        counts = sorted(set(map(len, rows)))
        if len(counts) > 1:
            raise CodeError("preprocess returns %s arrays; return as many each time" % counts)
        return [self._stacked(number, rows) for number in range(counts[0])]

    def postprocess(self, outputs: Sequence[Any]) -> Any:
        """Return what the code makes of the outputs for a batch, as an array."""
        return self._array("postprocess", self._call("postprocess", list(outputs)))

    def _call(self, name: str, data: Any) -> Any:
        function = self._space.get(name)
        if not callable(function):
            raise CodeError("%s: there is no function %s(ctx, data)" % (self._path, name))
        try:
            return function({}, data)
        except (Exception, SystemExit) as error:
            raise self._located(error, 0) from None

    def _stacked(self, number: int, rows: Sequence[Tuple[Any, ...]]) -> Any:
        import numpy

        arrays = [self._array("preprocess", row[number]) for row in rows]
        shapes = sorted({array.shape for array in arrays})
        if len(shapes) > 1:
            shown = ", ".join(map(str, shapes[:3]))
            raise CodeError("preprocess returns arrays of several shapes, %s" % shown)
        return numpy.stack(arrays)

    def _array(self, name: str, value: Any) -> Any:
        import numpy

        try:
            array = numpy.asarray(value)
        except Exception as error:
            raise CodeError("%s returns what is no array: %s" % (name, error)) from None
        if array.dtype.kind not in _KINDS:
            found = type(value).__name__
            raise CodeError("%s returns a %s of %s, not numbers" % (name, found, array.dtype))
        return array

    def _located(self, error: BaseException, line: int) -> CodeError:
        """Return an error of the code with the last line of the manifest that it went through."""
        if isinstance(error, SyntaxError) and error.filename == self._path:
            line = error.lineno or line
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == self._path:
                line = frame.lineno or line
        try:
            text = str(error)
        except Exception as another:
            text = "its text raised %s" % type(another).__name__
        return CodeError("%s:%d: %s: %s" % (self._path, line, type(error).__name__, text))
