"""The report of runs: one HTML file without scripts and without anything from elsewhere.

Its size is bounded. Items that are open come first, with all they have, the worst first. Then all
others get their tables, and last their pictures, if those of all fit. The rest are only rows, and
the report says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from markupsafe import Markup

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import missing_extra
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.records import Verdict
from pytest_mlms.show.pages.canvas import Figure
from pytest_mlms.show.pages.estimates import curves_figure, curves_of
from pytest_mlms.show.pages.html import KINDS, environment, sections_of
from pytest_mlms.show.pages.item import ItemView, findings_of
from pytest_mlms.show.pages.run import RunView

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pytest_mlms.show.pages.compare import CompareView
    from pytest_mlms.show.pages.evaluated import Evaluated, Losses
    from pytest_mlms.show.pages.series import SeriesView

MOST_BYTES = 2_000_000
"""The size of a report in bytes; only rows of items beyond some thousand make it larger."""

_FRAME_BYTES = 60_000  # the style sheet, the header, and comparisons
_MOST_CURVES = 24  # pictures over batch sizes
_MOST_COMPARED = 200  # rows of a comparison with another run
_LEAST_OVERVIEW = 2  # items that are looked at together
_FEW = 4  # items, of which none is folded

_UNREAD = "the history can't be read now"

Extent = Literal["row", "tables", "figures"]
"""A row has the verdict, numbers and command; tables also the rest but pictures."""


def write_report(
    path: Path,
    runs: Sequence[RunView],
    baseline: RunView | None = None,
    address: str | None = None,
) -> str:
    """Write the report of runs to a file, whole or not at all, with the series of a history.

    Returns why it is without these, "" where it has them or ``address`` names no history. Raises
    MlmsError where the report can't be written.
    """
    figures: Sequence[Figure] = ()
    database = None
    problem = ""
    if address:
        try:
            from pytest_mlms.keep.history.store import open_to_read
            from pytest_mlms.show.pages.series import history_figures

            figures, database = history_figures(address, runs), open_to_read(address)
        except MlmsError as error:
            problem = f"the report is without series: {error}"
        except ImportError as error:
            lacking = missing_extra(error)
            if lacking is None:
                raise
            problem = f"the report is without series: {lacking}"
    text = render_report(runs, baseline, figures, database, _UNREAD if problem else "")
    try:
        write_atomically(path, text)
    except OSError as error:
        raise MlmsError(f"{path}: the report can't be written: {error.strerror}") from error
    return problem


def render_report(
    runs: Sequence[RunView],
    baseline: RunView | None = None,
    history: Sequence[Figure] = (),
    database: Engine | None = None,
    lack: str = "",
) -> str:
    """Return the report of runs as HTML.

    ``baseline`` is a run that each of them is compared with, ``history`` pictures over time, and
    ``database`` the history that trends and changes of the first screen are from; ``lack`` says why
    there is none, "" where none was asked for.
    """
    items = sorted((item for run in runs for item in run.items), key=lambda item: item.badness)
    counts = dict.fromkeys(Verdict, 0)
    for item in items:
        counts[item.verdict] += 1
    curves = [curves_figure(each) for each in curves_of(items)[:_MOST_CURVES]]
    places = {(item.software, item.machine.text) for item in items}
    filling = _Filling(
        items,
        names_run=len(runs) > 1,
        folds=len(items) > _FEW,
        places_differ=len(places) > 1,
    )
    comparisons: list[CompareView] = []
    if baseline is not None:
        from pytest_mlms.show.pages.compare import compare_runs

        comparisons = [compare_runs(baseline, run) for run in runs]
    first = _first_screen(runs, database, lack)
    pictures = [*curves, *history]
    taken = _size(first) + sum(_size(f"{each.svg}{each.caption}") for each in pictures)
    return (
        environment()
        .get_template("report.html")
        .render(
            runs=runs,
            first=first,
            counts={verdict.value: count for verdict, count in counts.items() if count},
            items=filling.filled(MOST_BYTES - _FRAME_BYTES - taken),
            curves=curves,
            comparisons=comparisons,
            most_compared=_MOST_COMPARED,
            history=history,
            most_bytes=MOST_BYTES,
        )
    )


def _first_screen(runs: Sequence[RunView], database: Engine | None, lack: str) -> Markup:
    """Return what needs a look and the newest verdicts; nothing of a single item."""
    from pytest_mlms.show.pages.evaluated import Unfinished, evaluated_of
    from pytest_mlms.show.pages.overview import make_overview

    evaluated = []
    unfinished = []
    for run in runs:
        whole = run.exit_status in (0, 1) and not run.left_out
        if run.exit_status is None or run.left_out:
            unfinished.append(Unfinished(run.name, run.time))
        for item in run.items:
            evaluated.append(evaluated_of(item, run.numbers.get(item.nodeid, -1), whole))
    if len(evaluated) < _LEAST_OVERVIEW:
        return Markup()
    bench = _ReportBench(runs, database, lack)
    try:
        overview = make_overview(evaluated, bench, unfinished)
    except MlmsError:  # of the history, which went away meanwhile
        bench = _ReportBench(runs, None, _UNREAD)
        overview = make_overview(evaluated, bench, unfinished)
    macros = environment().get_template("_overview.html").make_module()
    return Markup(macros.screen(overview, has_pages=False))  # type: ignore[attr-defined]


class _ReportBench:
    """The items of a report, and a history if there is one."""

    has_pages = False

    def __init__(self, runs: Sequence[RunView], history: Engine | None, lack: str) -> None:
        self._history = history
        self._lack = lack
        self._items = {(item.run, item.nodeid): item for run in runs for item in run.items}

    def item(self, each: Evaluated) -> ItemView | None:
        return self._items.get((each.run, each.nodeid))

    def since(self, each: Evaluated) -> str:
        return ""

    def series(self, items: Sequence[Evaluated]) -> Mapping[tuple[str, int], SeriesView]:
        if self._history is None:
            return {}
        from pytest_mlms.keep.history.errors import HistoryError
        from pytest_mlms.show.pages.series import quantities_of_run
        from pytest_mlms.show.pages.trends import main_series

        runs: dict[str, Mapping[str, Mapping[str, str]]] = {}
        folders = {each.run: self._items[each.run, each.nodeid].folder for each in items}
        for run, folder in folders.items():
            with contextlib.suppress(HistoryError):  # a run that no history takes
                runs[run] = quantities_of_run(folder)
        found = {each.key: runs.get(each.run, {}).get(each.nodeid, {}) for each in items}
        return main_series(self._history, found)

    def losses(self, models: Collection[str]) -> Losses | None:
        from pytest_mlms.show.pages.evaluated import Losses

        if self._history is None:
            return Losses(lack=self._lack) if self._lack else None
        from pytest_mlms.show.pages.overview import MOST_LOOKS
        from pytest_mlms.show.pages.trends import read_losses

        return read_losses(self._history, models, MOST_LOOKS)


def _size(text: str) -> int:
    """Return the bytes of a text in the file."""
    return len(text.encode())


class RenderedItems(NamedTuple):
    """The HTML of open and of folded items, and the number of items that have less than all."""

    open: Sequence[Markup]
    folded: Sequence[Markup]
    without_figures: int
    without_tables: int


class _Filling:
    """Items that are rows at first and get more while bytes are left.

    ``names_run`` has each item name its run, ``folds`` those that passed open by a click, and
    ``places_differ`` is whether these have different stacks or machines to tell.
    """

    def __init__(
        self, items: Sequence[ItemView], names_run: bool, folds: bool, places_differ: bool
    ) -> None:
        self._items = items
        self._names_run = names_run
        self._folds = folds
        self._places_differ = places_differ
        self._texts = [self._html(item, "row") for item in items]
        self._extents: list[Extent] = ["row"] * len(items)
        self._left = 0

    def filled(self, most_bytes: int) -> RenderedItems:
        """Return the items, worst first, within so many bytes; only rows may be more than these."""
        self._left = most_bytes - sum(map(_size, self._texts))
        opened = [number for number, item in enumerate(self._items) if _is_open(item)]
        folded = [number for number, item in enumerate(self._items) if not _is_open(item)]
        for number in opened:
            if not self._grow(number, "figures"):
                break
        for number, extent in enumerate(self._extents):
            if extent == "row":
                self._grow(number, "tables")
        if "row" not in self._extents:
            before = (list(self._texts), list(self._extents))
            if not all(self._grow(number, "figures") for number in folded):
                self._texts, self._extents = before  # pictures of all of them, or of none
        shown = zip(self._items, self._extents, strict=True)
        return RenderedItems(
            open=[self._texts[number] for number in opened],
            folded=[self._texts[number] for number in folded],
            without_figures=sum(
                extent != "figures" and item.kind in KINDS for item, extent in shown
            ),
            without_tables=self._extents.count("row"),
        )

    def _grow(self, number: int, extent: Extent) -> bool:
        """Replace an item's text by a longer one; return False where the bytes don't suffice."""
        if self._left <= 0:
            return False
        text = self._html(self._items[number], extent)
        size = _size(text) - _size(self._texts[number])
        if size > self._left:
            return False
        self._left -= size
        self._texts[number] = text
        self._extents[number] = extent
        return True

    def _html(self, item: ItemView, extent: Extent) -> Markup:
        parts = environment().get_template("_parts.html").module
        is_open = _is_open(item)
        text = parts.entry(  # type: ignore[attr-defined]
            item,
            run=item.run if self._names_run else "",
            found=findings_of(item),
            sections=list(sections_of(item)) if extent == "figures" else (),
            is_open=is_open,
            is_unfolded=not self._folds,
            has_place=is_open or self._places_differ,
            details=extent != "row",
        )
        return Markup(text)


def _is_open(item: ItemView) -> bool:
    return item.is_bad or item.verdict is Verdict.INCONCLUSIVE
