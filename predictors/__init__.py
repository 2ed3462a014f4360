"""The agent's side: runs by path inside a stack's interpreter, which may be as old as Python 3.6.

Each file here is the predictor of one framework, and its name is the name that manifests use.
``_run/interface.py`` lists the functions of such a file. Nothing here imports pytest_mlms, and
nothing here knows of statistics, thresholds, where files came from, or pytest.
"""

from ._run.interface import Arrays, Call, Devices, InnerOutputs, Outputs, Shapes, Versions
from ._run.protocol import Layer, Load, Loaded, Operation, Profile, Structure, Tensor

__all__ = [
    "Arrays",
    "Call",
    "Devices",
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
    "Versions",
]
