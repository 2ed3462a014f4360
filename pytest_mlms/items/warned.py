"""Warnings at lines of files, which are errors without a traceback where -W makes them errors."""

from __future__ import annotations

import warnings

import pytest

from pytest_mlms.session import SESSION
from pytest_mlms.warning_types import MlmsWarning


def warn_at(path: str, line: int, text: str, category: type[MlmsWarning]) -> None:
    """Warn while a file is collected; raises CollectError by -W error."""
    try:
        warnings.warn_explicit(text, category, path, line)
    except MlmsWarning:
        raise pytest.Collector.CollectError(f"{path}:{line}: {text}") from None


def warn_of_run(
    config: pytest.Config, path: str, text: str, category: type[MlmsWarning] = MlmsWarning
) -> None:
    """Warn of a run whose items are collected; refuses it by -W error."""
    try:
        warn_at(path, 1, text, category)
    except pytest.Collector.CollectError as error:
        refuse(str(error), config)


def refuse(text: str, config: pytest.Config) -> None:
    """Raise UsageError; a worker of xdist, whose errors of usage nobody reads, reports it."""
    if config.stash[SESSION].worker is None:
        raise pytest.UsageError(text)
    report = pytest.CollectReport("mlms", "failed", longrepr=text, result=[])
    config.hook.pytest_collectreport(report=report)
