"""Check of predictors' options by what their files declare; no framework is imported."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlms_predictors._run.options import options_of, problem_of


def option_problems(
    framework: str, options: Mapping[str, Any], predictors: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the name of each option that a predictor doesn't take, and what to write instead.

    ``predictors`` has the predictor's file of each framework; where it has names alone, or the file
    declares no options, nothing is known of them.
    """
    path = predictors.get(framework) if isinstance(predictors, Mapping) else None
    if path is None or not options:
        return
    known = _declared(path)
    if known is None:
        return
    for name, value in options.items():
        problem = problem_of(name, value, known)
        if problem:
            yield name, problem


@lru_cache
def _declared(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] | None = options_of(path)
    except (OSError, UnicodeDecodeError):  # the agent tells why it can't be read
        return None
    return found
