"""Stacks that a run names, and that no manifest of the run has a model for."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from pytest_mlms.core.records import Stack
from pytest_mlms.items.warned import refuse, warn_of_run
from pytest_mlms.session import FIRST_WORKERS, SESSION


def check_stacks(config: pytest.Config) -> None:
    """Refuse an option whose stacks all have nothing to run, and warn of one among others.

    Of the stacks that --mlms-stack all stands for, some may have nothing to run.
    """
    session = config.stash[SESSION]
    if not session.offered_frameworks:
        return
    if "all" not in session.config.stack:
        _check("--mlms-stack", session.chosen_stacks, config)
    _check("--mlms-against", session.baseline_stacks, config)


def _check(option: str, stacks: list[Stack], config: pytest.Config) -> None:
    session = config.stash[SESSION]
    offered = session.offered_frameworks
    unused = [stack for stack in stacks if not _runs(stack, offered)]
    if not unused:
        return
    text = _explanation(option, unused, offered)
    if len(unused) == len(stacks):
        refuse(text, config)
    elif session.worker in FIRST_WORKERS:
        place = config.inipath or config.rootpath
        warn_of_run(config, str(place), text)


def _runs(stack: Stack, offered: Collection[str]) -> bool:
    return all(not name or name in offered for name in (stack.framework, stack.variant))


def _explanation(option: str, unused: Iterable[Stack], offered: Collection[str]) -> str:
    names = []
    frameworks = set()
    for stack in unused:
        names.append(stack.name)
        frameworks.add(stack.framework if stack.framework not in offered else stack.variant)
    shown_names = ", ".join(names)
    missing = ", ".join(sorted(frameworks))
    known = ", ".join(sorted(offered))
    problem = f"no manifest of this run has a model for {missing}"
    advice = f"name a stack for {known}, or add a model"
    return f"{option} {shown_names}: {problem}; {advice}"
