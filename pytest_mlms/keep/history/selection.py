"""Series of a history selected by expressions, as pytest's -k selects tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from _pytest.mark import expression as pytest_expression
from sqlalchemy import Connection, select

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.text import close_words
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.queries import series_names

ALL = "all"
"""The quantity that stands for every one."""

_MAIN_OF_PERFORMANCE = "latency_p50"
_MOST_SUGGESTED = 6
_WRONG: type[Exception] = getattr(pytest_expression, "ParseError", SyntaxError)


def select_series(connection: Connection, expression: str, quantity: str = "") -> list[int]:
    """Return the ids of the series whose names an expression matches, in the order of their names.

    ``quantity`` is that of all of them, if it is given. Raises HistoryError where nothing is
    selected: it says what there is.
    """
    wanted = "" if quantity == ALL else quantity
    names = series_names(connection, wanted)
    if not names:
        raise HistoryError(_nothing_of(connection, quantity))
    matches = _matcher(expression)
    found = {}
    for number, name in names.items():
        if matches(name):
            found[number] = name
    if not found:
        known = _known(names.values())
        raise HistoryError(f"-k {expression!r} selects no series; {known}")
    return sorted(found, key=lambda number: _natural(found[number]))


def is_main(quantity: str) -> bool:
    """Return whether a quantity stands for its items where only one line of each is shown.

    Of performance it is the median latency. Those of other kinds and of users' tests all are.
    """
    known = QUANTITIES.get(quantity)
    if known is None or known.kind != "performance":
        return True
    return quantity == _MAIN_OF_PERFORMANCE


def _matcher(expression: str) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches; raises HistoryError."""
    if not expression.strip():
        return lambda name: True
    try:
        compiled = pytest_expression.Expression.compile(expression)
    except (_WRONG, SyntaxError) as error:
        text = f"-k {expression!r} is no expression: {error}"
        raise HistoryError(f"{text}; write words, 'and', 'or', 'not' and brackets") from None

    def matches(name: str) -> bool:
        text = name.lower()

        def has(word: str, /, **_: object) -> bool:
            return word.lower() in text

        return compiled.evaluate(has)

    return matches


def _nothing_of(connection: Connection, quantity: str) -> str:
    """Return why there is no series of a quantity."""
    query = select(schema.series.c.quantity).distinct()
    known = sorted(connection.scalars(query))
    if not known:
        return "the history has no measurements yet; pytest --mlms-history or mlms history add RUN"
    near = close_words(quantity, known)
    if near:
        return f"no series has the quantity {quantity!r}; did you mean {near[0]!r}?"
    return f"no series has the quantity {quantity!r}; there are {', '.join(known)}"


def _known(names: Iterable[str]) -> str:
    """Return what an expression could match: the models, or some of them."""
    models = []
    for name in names:
        model = name.split(" ")[0]
        if model not in models:
            models.append(model)
    shown = ", ".join(models[:_MOST_SUGGESTED])
    more = len(models) - _MOST_SUGGESTED
    if more > 0:
        shown += f" and {more:,} more models"
    return f"there are {shown}: try -k {models[0]}"


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts b8 before b64."""
    key = []
    for part in re.split(r"(\d+)", name):
        if part.isdecimal():
            key.append((int(part), ""))
        else:
            key.append((-1, part))
    return key
