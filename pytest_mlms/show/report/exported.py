"""The numbers of an item for documents of other tools: one list, so that all of them have the same.

Terminal, pages and reports have theirs from views, by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import UNUSABLE, ChangeForm, change_form


class Exported(NamedTuple):
    """A number with the ends of its interval, where these are known; ``unit`` is its base unit.

    An ``estimate`` and what a user's own test recorded (``own``) are values. Of an upgrade it is a
    ``ratio`` of candidate and baseline, their ``difference``, or a ``multiple`` of what is allowed.
    """

    form: Literal["estimate", "own"] | ChangeForm
    name: str
    unit: str
    value: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> dict[str, float]:
        """The ends that are known, by "low" and "high"."""
        ends = {"low": self.low, "high": self.high}
        return {name: end for name, end in ends.items() if end is not None}


def exported_numbers(line: Mapping[str, Any]) -> Iterator[Exported]:
    """Yield the numbers of an item's line, but of a disturbed one, which say nothing.

    What was measured too little for an estimate is no number.
    """
    if line["verdict"] in UNUSABLE:
        return
    for name, fields in (line.get("estimates") or {}).items():
        if not fields.get("lacking"):
            yield from _number("estimate", name, QUANTITIES[name].unit, fields, "value")
    for name, fields in (line.get("quantities") or {}).items():
        yield from _number("own", name, fields["unit"], fields, "value")
    for fields in line.get("comparisons") or ():
        name = fields["quantity"]
        yield from _number(change_form(name, fields["of"]), name, "", fields, "ratio")


def _number(
    form: Literal["estimate", "own"] | ChangeForm,
    name: str,
    unit: str,
    fields: Mapping[str, Any],
    value: str,
) -> Iterator[Exported]:
    if fields[value] is not None:
        yield Exported(form, name, unit, fields[value], fields.get("low"), fields.get("high"))
