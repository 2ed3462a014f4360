"""Manifests of MLModelScope among those collected: one warning for all of them together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from pytest_mlms.items.warned import warn_of_run
from pytest_mlms.session import FIRST_WORKERS, SESSION, Session
from pytest_mlms.warning_types import MlmsNotGated, MlmsWarning

_SHOWN = 5


def warn_of_originals(config: pytest.Config) -> None:
    """Warn of what all originals of a run lack, and of files that are no manifests."""
    session = config.stash[SESSION]
    if session.worker not in FIRST_WORKERS:
        return
    place = os.path.relpath(session.config.manifests[0])
    for category, text in _texts(session):
        warn_of_run(config, place, text, category)


def _texts(session: Session) -> Iterator[tuple[type[MlmsWarning], str]]:
    count = len(session.originals)
    noun = "manifest" if count == 1 else "manifests"
    missing = Counter(origin.dataset for origin in session.originals if origin.dataset)
    if missing:
        names = _listed([f"{name} ({times})" for name, times in missing.most_common()])
        problem = f"no datasets.yaml describes the datasets of original manifests: {names}"
        yield MlmsWarning, f"{problem}; add them to one, so that accuracy is measured"
    if count and not (session.config.upgrade or session.config.sides):
        problem = f"no limit judges what is measured of {count:,} original {noun}"
        defaults = " but the defaults of soaks" if session.config.soak else ", which can't fail"
        yield MlmsNotGated, f"{problem}{defaults}; add thresholds to what 'mlms import' writes"
    if session.strangers:
        names = _listed([os.path.relpath(path) for path in session.strangers])
        yield MlmsWarning, f"{_were_left(len(session.strangers))} left alone: {names}"


def _were_left(count: int) -> str:
    if count == 1:
        return "1 YAML file is no manifest and was"
    return f"{count} YAML files are no manifests and were"


def _listed(names: list[str]) -> str:
    more = ["…"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more])
