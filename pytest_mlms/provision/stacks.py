"""The stacks that a framework can run on. Here: the interpreter that runs pytest."""

from __future__ import annotations

import sys

from pytest_mlms.records import Stack

__all__ = ["stacks_for"]


def stacks_for(framework: str) -> list[Stack]:
    """Return the stacks that run ``framework``; ``-B``: an agent leaves no bytecode in the installed package."""
    return [Stack("here", framework, (sys.executable, "-B"))]
