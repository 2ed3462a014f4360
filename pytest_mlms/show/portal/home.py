"""The first page, and the search of the whole bench."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fastapi import APIRouter, Request
from sqlalchemy import Engine
from starlette.responses import Response

from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.show.pages.evaluated import BAD_VERDICTS, Evaluated, Losses, newest_of
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import quantity_label
from pytest_mlms.show.pages.overview import MOST_LOOKS, Overview, make_overview
from pytest_mlms.show.pages.series import SeriesView
from pytest_mlms.show.pages.trends import main_series, quantities_of, read_losses
from pytest_mlms.show.portal.catalog import Catalog, RunViews
from pytest_mlms.show.portal.histories import Histories, has_words
from pytest_mlms.show.portal.manifests import Manifests
from pytest_mlms.show.portal.rendering import Pages

_DAYS = 30
"""The newest verdicts are those of the runs up to so many days before the newest one."""

_MOST_RUNS = 200
_MOST_LINES = 20_000
_RUNS_SHOWN = 8
_MOST_FOUND = 20
_MOST_WORDS = 8
_LONGEST_QUERY = 200


class _PortalBench:
    """The items of the index, and the history of the portal, or why it can't be read."""

    has_pages = True

    def __init__(
        self, catalog: Catalog, views: RunViews, history: Engine | None, lack: str = ""
    ) -> None:
        self._history = history
        self._lack = lack
        self._catalog = catalog
        self._views = views

    def item(self, each: Evaluated) -> ItemView | None:
        return self._views.last(each.run, each.number)

    def since(self, each: Evaluated) -> str:
        return self._catalog.bad_since(each.nodeid, each.machine)

    def series(self, items: Sequence[Evaluated]) -> Mapping[tuple[str, int], SeriesView]:
        if self._history is None:
            return {}
        lines = {each.key: self._views.line(each.run, each.number) for each in items}
        return main_series(self._history, {key: quantities_of(line) for key, line in lines.items()})

    def losses(self, models: Collection[str]) -> Losses | None:
        if self._history is None:
            return Losses(lack=self._lack) if self._lack else None
        return read_losses(self._history, models, MOST_LOOKS)


@dataclass(frozen=True)
class _Found:
    """A page that a search found: its text, its link, and a note."""

    text: str
    link: str
    note: str = ""


def make_home(
    catalog: Catalog, views: RunViews, history: Histories, manifests: Manifests, pages: Pages
) -> APIRouter:
    """Return the routes."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def home(request: Request) -> Response:
        runs = catalog.runs(_RUNS_SHOWN, 0)
        overview, problem = _overview(catalog, views, history)
        return pages.page(
            request,
            "home.html",
            place="overview",
            overview=overview,
            problem=problem,
            has_history=history.is_there,
            page=runs,
            confirmations=history.confirmations([row.name for row in runs.rows]),
        )

    @router.get("/search")
    def search(request: Request, q: str = "") -> Response:
        words = q[:_LONGEST_QUERY].casefold().split()[:_MOST_WORDS]
        groups = _search(catalog, history, manifests, words) if words else {}
        return pages.page(request, "search.html", place="", query=q[:_LONGEST_QUERY], groups=groups)

    return router


def _overview(catalog: Catalog, views: RunViews, history: Histories) -> tuple[Overview, str]:
    """Return the first screen, and why the history is not in it; "" where it is.

    Runs of confirmations are left out: they have stacks of their own, and are told at the change.
    """
    runs = catalog.newest_runs(_DAYS, _MOST_RUNS, _MOST_LINES)
    confirmations = history.confirmations(runs)
    evaluated = catalog.newest_items([run for run in runs if run not in confirmations])
    unfinished = catalog.unfinished(runs)
    try:
        engine = history.engine() if history.is_there else None
        return make_overview(evaluated, _PortalBench(catalog, views, engine), unfinished), ""
    except HistoryError as error:
        bench = _PortalBench(catalog, views, None, "the history can't be read now")
        return make_overview(evaluated, bench, unfinished), str(error)


def _search(
    catalog: Catalog, history: Histories, manifests: Manifests, words: Sequence[str]
) -> dict[str, Sequence[_Found]]:
    """Return what has all of the words in its name, by what it is."""
    names = {row.name for row in catalog.models()}
    names |= {entry.name for entry in manifests.by_path().values()}
    runs = catalog.newest_runs(_DAYS, _MOST_RUNS, _MOST_LINES)
    newest = newest_of(catalog.newest_items(runs))
    newest.sort(key=lambda each: each.verdict not in BAD_VERDICTS)
    found = {
        "models": _places("models", sorted(names), words),
        "hosts": _places("hosts", [row.host for row in catalog.hosts()], words),
        "stacks": _places("stacks", [row.stack for row in catalog.stacks()], words),
        "newest cases": [
            _Found(f"{each.model}: {each.kind} {each.case}", each.link, each.verdict)
            for each in newest
            if has_words(f"{each.model} {each.kind} {each.case} {each.nodeid} {each.stack}", words)
        ],
        "runs": [
            _Found(
                row.name,
                f"/runs/{quote(row.name, safe='')}",
                ", ".join(filter(None, [row.host, row.started_by])),
            )
            for row in catalog.runs_like(words, _MOST_FOUND + 1)
        ],
        "series": [],
    }
    if history.is_there:
        try:
            found["series"] = _series(history, words)
        except HistoryError as error:
            found["series"] = [_Found("the history can't be read", "/series", str(error))]
    return {kind: rows for kind, rows in found.items() if rows}


def _places(of: str, names: Iterable[str], words: Sequence[str]) -> list[_Found]:
    """Return the pages of models, hosts or stacks whose name has all of the words."""
    wanted = [name for name in dict.fromkeys(names) if has_words(name, words)]
    return [_Found(name, f"/{of}/{quote(name, safe='')}") for name in wanted]


def _series(history: Histories, words: Sequence[str]) -> list[_Found]:
    page = history.series(_MOST_FOUND + 1, 0, words)
    rows = []
    for row in page.rows:
        text = f"{row.model}: {quantity_label(row.quantity)}, {row.kind} {row.case}"
        rows.append(_Found(text, f"/series/{row.id}", row.machine))
    return rows
