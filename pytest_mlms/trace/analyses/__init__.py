"""The analyses A1 to A15 of XSP as tables, and those of steps and counters.

XSP is that of Li and others, IPDPS 2020 (https://arxiv.org/abs/1908.06869). To add an analysis, add
it to the ``ANALYSES`` of a module of this package. Without a GPU, tables of kernels are empty.
"""

from __future__ import annotations

import math

from pytest_mlms.trace.analyses import kernels, layers, models, requests, rooflines
from pytest_mlms.trace.analyses.analysis import Analysis

__all__ = ["ANALYSES"]

_MODULES = (models, layers, kernels, rooflines, requests)


def _in_order() -> dict[str, Analysis]:
    """Return all analyses by XSP's number, those without a number last."""
    found: dict[str, Analysis] = {}
    for module in _MODULES:
        found.update(module.ANALYSES)
    names = sorted(found, key=lambda name: _number(found[name]))
    return {name: found[name] for name in names}


def _number(analysis: Analysis) -> float:
    if not analysis.number:
        return math.inf
    return int(analysis.number.removeprefix("A"))


ANALYSES: dict[str, Analysis] = _in_order()
"""Each analysis by its name."""
