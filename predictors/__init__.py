"""The agent's side: runs by path inside a stack's interpreter, which may be as old as Python 3.6.

One file here is one framework, and its name is the name that manifests use. CONTRIBUTING.md says
what such a file holds. Nothing here imports pytest_mlms, and nothing here knows of statistics,
thresholds, where files came from, or pytest.
"""

from ._run.protocol import Layer, Load, Loaded, Operation, Profile, Structure, Tensor

__all__ = ["Layer", "Load", "Loaded", "Operation", "Profile", "Structure", "Tensor"]
