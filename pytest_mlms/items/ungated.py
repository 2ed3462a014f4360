"""Manifests without a limit: their items measure, and nothing judges what they measure."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_mlms.decide.expected import expected
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.provide.cases import Case
from pytest_mlms.items.warned import warn_at
from pytest_mlms.session import FIRST_WORKERS, Session
from pytest_mlms.warning_types import MlmsNotGated


def warn_without_limits(loaded: LoadedManifest, cases: Sequence[Case], session: Session) -> None:
    """Warn once of a manifest none of whose cases must decide anything but a soak's defaults.

    A model without a manifest needs no limit, and neither do the control of a host, and hosts that
    are compared. Of originals, one warning tells of all.
    """
    if loaded.origin is not None:
        session.originals.append(loaded.origin)
    config = session.config
    if loaded.manifest.control or config.sides or config.model:
        return
    if not cases or any(not limit.default for case in cases for limit in expected(case, config)):
        return
    session.ungated.add(loaded.path)
    if loaded.origin is not None or session.worker not in FIRST_WORKERS:
        return

    place = loaded.place()
    name = loaded.manifest.name
    text = f"no limit judges what {name} measures"
    if any(case.kind == "soak" for case in cases):
        text += " but the defaults of its soaks, so nothing else of it can fail; add thresholds"
    elif loaded.limits("soak"):
        text += (
            " without --mlms-soak, so it can't fail; add that, or thresholds of other quantities"
        )
    else:
        text += f", so it can't fail; {_advice(loaded)}"
    warn_at(str(place.path), place.line, text, MlmsNotGated)


def _advice(loaded: LoadedManifest) -> str:
    """Return how to have a limit; an agreement is one where another model than its own runs."""
    if not loaded.manifest.thresholds.agreement:
        return "add thresholds"
    return (
        "no stack of this run has a model that its agreement compares with the reference: name one "
        "by --mlms-stack ('here' runs the models of all frameworks), or add other thresholds"
    )


def failure_without_limits(case: Case, session: Session) -> str:
    """Return why an item fails under --mlms-strict if no limit judges it.

    It is "" where other items of the manifest are judged, and for a soak, which has limits.
    """
    if case.loaded.path not in session.ungated or expected(case, session.config):
        return ""
    return (
        f"no limit judges what was measured, and --mlms-strict asks for one\n"
        f"  {_advice(case.loaded)} in {case.loaded.place().path}"
    )
