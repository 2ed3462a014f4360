"""The analyses A1 to A15 of XSP as tables, and analyses of steps and counters.

XSP is by Li and others, IPDPS 2020 (https://arxiv.org/abs/1908.06869). To add an analysis, add
it to the ``ANALYSES`` of a module of this package. Without a GPU, tables of kernels are empty.
"""

from __future__ import annotations

import math

from pytest_mlms.measure.trace.analyses import requests, xsp
from pytest_mlms.measure.trace.analyses.analysis import Analysis


def _number(analysis: Analysis) -> float:
    """Return XSP's number of an analysis; those without one come last."""
    if not analysis.number:
        return math.inf
    return int(analysis.number.removeprefix("A"))


def _by_name() -> dict[str, Analysis]:
    found: list[Analysis] = []
    for module in (xsp, requests):
        found += module.ANALYSES
    found.sort(key=_number)
    return {analysis.name: analysis for analysis in found}


ANALYSES = _by_name()
"""Each analysis by its name, in the order of XSP's numbers."""
