"""--mlms-model: a manifest in the run's folder, for a model that has none."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.model_files import recognise_models
from pytest_mlms.author.draft.opening import DraftRequest, stacks_of
from pytest_mlms.author.draft.parts import Draft
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.session import Session


def draft_model(session: Session) -> None:
    """Write the manifest, unless this is a worker, and have the session collect it.

    Raises MlmsError.
    """
    path = session.draft
    assert path is not None, "there is a draft where a model is named"
    config = session.config
    stacks = config.stack
    if len(config.model) > 1 and not stacks:
        stacks = ("here",)  # which runs all of them
    session.config = replace(config, manifests=(*config.manifests, path), stack=stacks)
    if session.worker is None:
        session.drafted = tuple(_write(session, path))


def _write(session: Session, path: Path) -> list[str]:
    """Write a draft; return what was found out about its models."""
    config = session.config
    models = recognise_models(config.model, session.predictors)
    lines: list[str] = []
    request = DraftRequest(
        models=models,
        stacks=stacks_of(models, session.chosen_stacks),
        target=path,
        predictors=session.predictors,
        cache=session.cache,
        say=lines.append,
        show=_show_nothing,
        allow_code=config.allow_code,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = _with_agreement(draft_manifest(request))
        write_atomically(path, draft.text())
    except OSError as error:
        raise MlmsError(
            f"{path} can't be written: {error.strerror}; name --mlms-results"
        ) from error
    command = f"mlms init {shlex.join(config.model)}"
    advice = f"without limits; one with some is written by: {command}"
    return [*lines, f"drafted {os.path.relpath(path)}, {advice}"]


def _with_agreement(draft: Draft) -> Draft:
    """Return a draft of several models with an agreement between them."""
    if len(draft.models) < 2:
        return draft
    return replace(draft, thresholds=[(draft.agreement(draft.rounding), "by rounding")])


def _show_nothing(step: str) -> None:
    pass
