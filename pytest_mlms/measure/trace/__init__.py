"""Traces of where the time of a request goes: spans and counters, their files and their tables.

The modules of this package start no agent, except ``runner``, and none of them judges a
result.
"""

from pytest_mlms.core.settings import LEVELS as LEVELS

BY_LAYER = "layer+hardware"
"""Level of the run that reads counters between the layers of the framework."""

BY_PHASE = "application+hardware"
"""Level of the run that reads counters of the pytest process between the phases of a request."""

PHASES = (
    "pre-process",
    "predict, through the agent",
    "post-process",
)
"""Phases of a request on the pytest side, in the order in which they run."""
