"""Pages of runs, items, models, hosts and stacks, and of the history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from starlette.responses import Response

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.labels import format_change
from pytest_mlms.show.pages.html import sections_of
from pytest_mlms.show.pages.item import ItemView, findings_of
from pytest_mlms.show.pages.numbers import estimate_text, own_text, quantity_label
from pytest_mlms.show.pages.series import series_chart
from pytest_mlms.show.pages.sparkline import MOST_RUNS
from pytest_mlms.show.portal.api import Number, Offset
from pytest_mlms.show.portal.catalog import Catalog, ModelRow, RunViews
from pytest_mlms.show.portal.histories import Histories
from pytest_mlms.show.portal.manifests import ManifestEntry, Manifests
from pytest_mlms.show.portal.rendering import Pages

_ROWS = 50
_MOST_COMPARED = 8
_OPEN_ITEMS = 20
"""Items of a run that are shown with what failed; the others are rows."""

_TRACE = "trace.pftrace"
_SHOWN_POINTS = 100


@dataclass(frozen=True)
class _Model:
    """A model of the list: as it was evaluated, and as its manifest says, where there is one."""

    name: str
    evaluated: ModelRow | None
    manifest: ManifestEntry | None


def make_pages(
    catalog: Catalog, views: RunViews, history: Histories, manifests: Manifests, pages: Pages
) -> APIRouter:
    """Return the routes."""
    router = APIRouter(include_in_schema=False)
    router.include_router(_of_runs(catalog, views, history, pages))
    router.include_router(_of_models(catalog, views, manifests, pages))
    for of in ("host", "stack"):
        router.include_router(_of_places(catalog, views, pages, of))
    return router


def _of_runs(catalog: Catalog, views: RunViews, history: Histories, pages: Pages) -> APIRouter:
    router = APIRouter()

    @router.get("/runs")
    def runs(request: Request, offset: Offset = 0) -> Response:
        found = catalog.runs(_ROWS, offset)
        return pages.page(
            request,
            "runs.html",
            place="runs",
            page=found,
            confirmations=history.confirmations([row.name for row in found.rows]),
        )

    @router.get("/runs/{name}")
    def run(request: Request, name: str) -> Response:
        found = views.run(name)
        if found is None:
            raise HTTPException(404, f"there is no run {name[:100]}")
        worst = found.worst_first
        bad = [item for item in worst if item.is_bad or item.verdict is Verdict.INCONCLUSIVE]
        return pages.page(
            request,
            "run.html",
            place="runs",
            run=found,
            confirmation=history.confirmations([name]).get(name, ""),
            bad=[(item, findings_of(item)) for item in bad[:_OPEN_ITEMS]],
            items=worst,
        )

    @router.get("/runs/{name}/items/{number}")
    def item(request: Request, name: str, number: Number) -> Response:
        found = views.item(name, number)
        if found is None:
            raise HTTPException(404, "there is no such item")
        files = catalog.artifacts(name, number)
        return pages.page(
            request,
            "item.html",
            place="runs",
            item=found,
            findings=findings_of(found),
            sections=list(sections_of(found)),
            series=history.of_item(views.line(name, number)),
            run=name,
            number=number,
            files=files,
            trace=_TRACE if _TRACE in files else "",
        )

    return router


def _of_models(catalog: Catalog, views: RunViews, manifests: Manifests, pages: Pages) -> APIRouter:
    router = APIRouter()

    @router.get("/models")
    def models(
        request: Request,
        task: str = "",
        framework: str = "",
        license: str = "",  # noqa: A002
    ) -> Response:
        every = list(_models(catalog, manifests))
        wanted = {"task": task, "framework": framework, "license": license}
        asked = {name: value for name, value in wanted.items() if value}
        chosen = []
        for model in every:
            facts = _facts(model)
            if all(value in facts[name] for name, value in asked.items()):
                chosen.append(model)
        return pages.page(
            request,
            "models.html",
            place="models",
            models=chosen,
            choices=_choices(every),
            chosen=wanted,
        )

    @router.get("/models/{name:path}")
    def model(request: Request, name: str, offset: Offset = 0) -> Response:
        entry = manifests.of_model(name)
        page = catalog.items(_ROWS, offset, model=name)
        if entry is None and not page.total:
            raise HTTPException(404, "there is no such model")
        return pages.page(
            request,
            "model.html",
            place="models",
            name=name,
            manifest=entry,
            structures=views.structures(name),
            page=page,
        )

    @router.get("/compare")
    def compare(request: Request, item: Annotated[list[str], Query()] = []) -> Response:  # noqa: B006
        if not 2 <= len(item) <= _MOST_COMPARED:
            raise HTTPException(400, f"choose 2 to {_MOST_COMPARED} items to compare")
        items = [_named(views, name) for name in item]
        columns = [dict(_values(each)) for each in items]
        quantities = dict.fromkeys(name for column in columns for name in column)
        return pages.page(
            request,
            "compare.html",
            place="models",
            items=list(zip(item, items, strict=True)),
            rows={name: [column.get(name, "") for column in columns] for name in quantities},
        )

    return router


def _of_places(catalog: Catalog, views: RunViews, pages: Pages, of: str) -> APIRouter:
    """Return the routes of hosts or of stacks, each with the last item that ran there."""
    router = APIRouter(prefix=f"/{of}s")

    @router.get("")
    def places(request: Request) -> Response:
        found = catalog.hosts() if of == "host" else catalog.stacks()
        rows = [(row, views.last(row.run, row.number)) for row in found]
        return pages.page(request, "places.html", place=f"{of}s", of=of, rows=rows)

    @router.get("/{name:path}")
    def place(request: Request, name: str, offset: Offset = 0) -> Response:
        page = catalog.items(_ROWS, offset, **{of: name})
        newest = catalog.items(1, 0, **{of: name}).rows
        if not newest:
            raise HTTPException(404, f"there is no such {of}")
        return pages.page(
            request,
            "place.html",
            place=f"{of}s",
            of=of,
            name=name,
            page=page,
            last=views.last(newest[0].run, newest[0].number),
            software=catalog.software(**{of: name}),
        )

    return router


def _models(catalog: Catalog, manifests: Manifests) -> Iterator[_Model]:
    """Yield the models that were evaluated, or have a manifest, by name."""
    evaluated = {row.name: row for row in catalog.models()}
    declared = {entry.name: entry for entry in manifests.by_path().values()}
    for name in sorted(evaluated.keys() | declared.keys()):
        yield _Model(name, evaluated.get(name), declared.get(name))


def _facts(model: _Model) -> dict[str, Sequence[str]]:
    """Return what models may be chosen by."""
    manifest = model.manifest
    frameworks = set(manifest.frameworks if manifest else ())
    frameworks |= set(model.evaluated.frameworks if model.evaluated else ())
    return {
        "task": [manifest.task] if manifest else [],
        "framework": sorted(frameworks),
        "license": [manifest.license] if manifest and manifest.license else [],
    }


def _choices(models: Sequence[_Model]) -> dict[str, list[str]]:
    """Return the values of each fact that any model has."""
    values: dict[str, set[str]] = {"task": set(), "framework": set(), "license": set()}
    for model in models:
        for name, of_model in _facts(model).items():
            values[name] |= set(of_model)
    return {name: sorted(found) for name, found in values.items()}


def _named(views: RunViews, name: str) -> ItemView:
    """Return an item by RUN:NUMBER; raises HTTPException."""
    run, _, number = name.rpartition(":")
    found = views.item(run, int(number)) if number.isdecimal() and len(number) < 12 else None
    if found is None:
        raise HTTPException(404, "one of the items is not there")
    return found


def _values(item: ItemView) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each quantity of an item, those of an upgrade as B over A."""
    for name, estimate in item.estimates.items():
        yield quantity_label(name), estimate_text(estimate)
    for name, own in item.quantities.items():
        yield name, own_text(own)
    for compared in item.comparisons:
        yield f"{quantity_label(compared.quantity)}, B / A", format_change(compared)


def make_history_pages(history: Histories, pages: Pages) -> APIRouter:
    """Return the routes; without a history they say how to have one."""
    router = APIRouter(include_in_schema=False)

    @router.get("/series")
    def all_series(request: Request, offset: Offset = 0, contains: str = "") -> Response:
        if not history.is_there:
            return _without(pages, request, "series")
        page = history.series_rows(_ROWS, offset, contains)
        return pages.page(
            request,
            "series_list.html",
            place="series",
            page=page,
            contains=contains,
            most_runs=MOST_RUNS,
        )

    @router.get("/series/{number}")
    def series(request: Request, number: Number) -> Response:
        found = history.series_view(number, _SHOWN_POINTS)
        changes = history.changes(_ROWS, 0, number).rows
        return pages.page(
            request,
            "series.html",
            place="series",
            series=found,
            points=found.points[::-1],
            changes=changes,
            moved=history.moved(changes),
            chart=series_chart(found),
        )

    @router.get("/changes")
    def changes(request: Request, offset: Offset = 0) -> Response:
        if not history.is_there:
            return _without(pages, request, "changes")
        page = history.changes(_ROWS, offset)
        moved = history.moved(page.rows)
        return pages.page(request, "changes.html", place="changes", page=page, moved=moved)

    return router


def _without(pages: Pages, request: Request, section: str) -> Response:
    text = "This portal has no history. Start it with --history; pytest --mlms-history makes one."
    return pages.page(request, "message.html", place=section, title=section.capitalize(), text=text)
