"""The agent side: predictors, one file for each framework, and what runs them.

It runs by path inside a stack's interpreter, which may be as old as Python 3.6. The name of a
predictor's file is the name that manifests use, and ``_run/interface.py`` lists its functions.
Nothing here imports pytest_mlms. Nothing here is aware of statistics, thresholds, where files came
from, or pytest.

PYTEST_DONT_REWRITE: nor does pytest warn in a later session of a process that this is imported.
"""

from ._run.interface import (
    Arrays,
    Call,
    CountedBytes,
    Devices,
    EventTimes,
    InnerOutputs,
    Outputs,
    Shapes,
    Token,
    Versions,
)
from ._run.protocol import Generation, Layer, Load, Loaded, Operation, Profile, Structure, Tensor

__all__ = [
    "Arrays",
    "Call",
    "CountedBytes",
    "Devices",
    "EventTimes",
    "Generation",
    "InnerOutputs",
    "Layer",
    "Load",
    "Loaded",
    "Operation",
    "Outputs",
    "Profile",
    "Shapes",
    "Structure",
    "Tensor",
    "Token",
    "Versions",
]
