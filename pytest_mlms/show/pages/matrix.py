"""Matrix of a classification: inputs by label and best class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from pytest_mlms.core.text import shortened
from pytest_mlms.show.pages.confusion import Confusion, Mistake
from pytest_mlms.show.pages.mistakes import mistake_text
from pytest_mlms.show.pages.svg import WIDTH, element, filled, picture, words

_TOP = 34.0  # of the first row, below the names of the columns
_LARGEST_CELL = 40.0
_LONGEST_NAME = 14  # characters of a class
_CHARACTER = 7.1  # its width
_OPACITIES = {"good": (0.12, 0.5), "bad": (0.3, 0.4)}
"""Paint of a cell -> its opacity for no input, and what the highest count adds."""


def confusion_matrix(confusion: Confusion) -> Markup:
    """Return the number of inputs for each label, from the top, and each best class."""
    return _Matrix(confusion).svg()


@dataclass(frozen=True)
class _Matrix:
    confusion: Confusion

    def svg(self) -> Markup:
        mistakes = map(mistake_text, self.confusion.top_mistakes(3))
        label = f"labels against best classes: {'; '.join(mistakes)}"
        height = _TOP + len(self._names) * self._side + 6
        return picture(label, height, [*self._titles(), *self._rows()])

    @property
    def _names(self) -> Sequence[str]:
        return self.confusion.classes

    @cached_property
    def _left(self) -> float:
        """The width of the names of rows."""
        longest = max(map(len, [*self._names, "label"]))
        return 14 + min(longest, _LONGEST_NAME) * _CHARACTER

    @cached_property
    def _side(self) -> float:
        """The side of a cell."""
        room = WIDTH - self._left - 4
        return min(room / len(self._names), _LARGEST_CELL)

    @cached_property
    def _highest(self) -> int:
        return max(self.confusion.counts.values())

    def _titles(self) -> Iterator[Markup]:
        middle = self._left + self._side * len(self._names) / 2
        yield words(middle, 12, "best class", "middle", "muted")
        yield words(self._left - 6, 28, "label", "end", "muted")
        most = max(int(self._side / _CHARACTER), 1)
        for column, name in enumerate(self._names):
            middle = self._left + (column + 0.5) * self._side
            yield words(middle, 28, _cut(name, most), "middle", "ink", name)

    def _rows(self) -> Iterator[Markup]:
        for row, label in enumerate(self._names):
            down = _TOP + row * self._side
            name = shortened(label, _LONGEST_NAME)
            yield words(self._left - 6, self._baseline(down), name, "end", "ink")
            for column, best in enumerate(self._names):
                across = self._left + column * self._side
                yield from self._cell(across, down, label, best)

    def _cell(self, across: float, down: float, label: str, best: str) -> Iterator[Markup]:
        count = self.confusion.counts.get((label, best), 0)
        title = _title(label, best, count)
        side = self._side - 1
        square = {"x": across, "y": down, "width": side, "height": side}
        yield element("rect", title=title, **square, **filled("panel"))
        if not count:
            return
        paint = "good" if label == best else "bad"
        faintest, added = _OPACITIES[paint]
        opacity = faintest + added * count / self._highest
        yield element("rect", opacity=f"{opacity:.2f}", title=title, **square, **filled(paint))
        middle = across + self._side / 2
        yield words(middle, self._baseline(down), f"{count:,}", "middle", "ink", title)

    def _baseline(self, down: float) -> float:
        """Return the place of a text in a row that begins at ``down``."""
        return down + self._side / 2 + 4


def _title(label: str, best: str, count: int) -> str:
    if label != best:
        return mistake_text(Mistake(label, best, count))
    verb = "input is" if count == 1 else "inputs are"
    return f"{count:,} {verb} right of class {label}"


def _cut(name: str, most: int) -> str:
    """Return the beginning of a name that is longer than a column has room for."""
    if len(name) <= most:
        return name
    return f"{name[: max(most - 1, 1)]}…"
