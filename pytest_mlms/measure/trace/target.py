"""The model under trace, as the runs of a trace need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.trace.request_phases import PreparedRequest


@dataclass(frozen=True)
class TraceTarget:
    """How to start the predictor of a model, and how to make its inputs.

    ``open_predictor`` takes environment variables for the agent. ``make_batch`` returns the arrays
    that are traced in the agent. ``make_request`` prepares a request as a user's program would.
    ``layer_variables`` are those of the agent whose layers are timed: each launch is waited for.
    """

    open_predictor: Callable[..., AbstractContextManager[Predictor]]
    make_batch: Callable[[Predictor], Mapping[str, Array]]
    make_request: Callable[[Predictor], PreparedRequest]
    layer_variables: Mapping[str, str] = field(default_factory=dict)
