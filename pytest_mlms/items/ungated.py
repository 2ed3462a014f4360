"""Manifests without a limit: their items measure, and nothing judges what they measure."""

from __future__ import annotations

import warnings

from pytest_mlms.cases import Case
from pytest_mlms.config import Config
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.records import Place
from pytest_mlms.session import FIRST_WORKERS, Session

__all__ = ["failure_without_limits", "warn_without_limits"]


def warn_without_limits(loaded: LoadedManifest, session: Session) -> None:
    """Warn once of a manifest that judges nothing.

    Of originals, one warning tells of all.
    """
    if loaded.origin is not None:
        session.originals.append(loaded.origin)
        return
    if session.worker not in FIRST_WORKERS:
        return
    if _is_judged(loaded, session.config):
        return
    name = loaded.manifest.name
    _warn(loaded.place(), f"no limit judges what {name} measures, so it can't fail; add thresholds")


def _warn(place: Place, text: str) -> None:
    from pytest_mlms.warning_types import MlmsNotGated

    warnings.warn_explicit(text, MlmsNotGated, str(place.path), place.line)


def failure_without_limits(case: Case, config: Config) -> str:
    """Return why an item fails under --mlms-strict if no limit judges it.

    It is "" where other items of the manifest are judged.
    """
    if _is_judged(case.loaded, config):
        return ""
    return (
        f"no limit judges what was measured, and --mlms-strict asks for one\n"
        f"  add thresholds to {case.loaded.place().path}"
    )


def _is_judged(loaded: LoadedManifest, config: Config) -> bool:
    """Return whether a manifest has a limit, or a comparison judges all that is measured.

    A model without a manifest needs none, and neither does the control of a host.
    """
    if loaded.manifest.control:
        return True
    return config.upgrade or bool(config.sides or config.model) or loaded.has_limits
