"""Stacks that a run names, and that no manifest of the run has a model for."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable

import pytest

from pytest_mlms.recorder import MlmsWarning
from pytest_mlms.records import Stack
from pytest_mlms.session import FIRST_WORKERS, Session

__all__ = ["check_stacks"]


def check_stacks(config: pytest.Config, session: Session) -> None:
    """Refuse an option whose stacks all have nothing to run, and warn of one among others.

    Of the stacks that --mlms-stack all stands for, some may have nothing to run.
    """
    if not session.offered_frameworks:
        return
    named = session.config.stack
    if "all" not in named:
        _check("--mlms-stack", session.chosen_stacks, session, config)
    _check("--mlms-against", session.baseline_stacks, session, config)


def _check(option: str, stacks: list[Stack], session: Session, config: pytest.Config) -> None:
    unused = [stack for stack in stacks if not _runs(stack, session.offered_frameworks)]
    if not unused:
        return
    text = _explanation(option, unused, session.offered_frameworks)
    if len(unused) == len(stacks):
        _refuse(text, session, config)
    elif session.worker in FIRST_WORKERS:
        place = str(config.inipath or config.rootpath)
        warnings.warn_explicit(text, MlmsWarning, place, 1)


def _refuse(text: str, session: Session, config: pytest.Config) -> None:
    """Raise UsageError; a worker of xdist, whose errors of usage nobody reads, reports it."""
    if session.worker is None:
        raise pytest.UsageError(text)
    report = pytest.CollectReport("stacks", "failed", longrepr=text, result=[])
    config.hook.pytest_collectreport(report=report)


def _runs(stack: Stack, offered: Collection[str]) -> bool:
    return not stack.framework or stack.framework in offered


def _explanation(option: str, unused: Iterable[Stack], offered: Iterable[str]) -> str:
    names = ", ".join(stack.name for stack in unused)
    frameworks = ", ".join(dict.fromkeys(stack.framework for stack in unused))
    known = ", ".join(sorted(offered))
    problem = f"no manifest of this run has a model for {frameworks}"
    return f"{option} {names}: {problem}; name a stack for {known}, or add a model"
