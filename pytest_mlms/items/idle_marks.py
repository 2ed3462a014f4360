"""Marks of a manifest that mark nothing, as one with a mistake in its pattern does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pytest_mlms.items.warned import warn_at
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.provide.cases import Case, cases_of
from pytest_mlms.provide.stacks.declared import stacks_for
from pytest_mlms.session import FIRST_WORKERS, Session
from pytest_mlms.warning_types import MlmsWarning

_OF_OTHER_RUNS = re.compile(r"-vs-|-aa|[=<>~+/#]")
"""In patterns for upgrades, or for stacks that only an option names."""


def warn_of_idle_marks(loaded: LoadedManifest, cases: Sequence[Case], session: Session) -> None:
    """Warn of each mark that no case has, neither in this run nor on another declared stack.

    No error, since a mark may be for a stack that is declared elsewhere.
    """
    idle = []
    for name, reasons in loaded.manifest.marks.items():
        for pattern in reasons:
            if not any(case.is_called(pattern) for case in cases):
                idle.append((name, pattern))
    if not idle or session.worker not in FIRST_WORKERS:
        return
    possible = list(_possible_cases(loaded, session))
    for name, pattern in idle:
        is_of_another = _OF_OTHER_RUNS.search(pattern)
        if not is_of_another and not any(case.is_called(pattern) for case in possible):
            place = loaded.place("marks", name, pattern)
            advice = f"name a framework, a stack, or a pattern of ids such as {possible[-1].id}"
            text = f"{name} {pattern!r} marks nothing; {advice}"
            warn_at(str(place.path), place.line, text, MlmsWarning)


def _possible_cases(loaded: LoadedManifest, session: Session) -> Iterator[Case]:
    """Yield cases with each id that items may have on declared stacks, but those of upgrades."""
    offered = [model.name for model in loaded.manifest.models]
    stacks = [*session.declared_stacks.values(), *session.chosen_stacks]
    for kind in ("accuracy", "trace", "performance"):
        yield from cases_of(
            loaded, kind, lambda name: stacks_for(name, stacks, offered), lambda name: None
        )
