"""Steps of native manifests as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Number(NamedTuple):
    """The name of a number of code, in place of the number."""

    name: str


Parameter = str | float | Sequence[float] | Number
"""The value of a step's parameter."""

Step = Mapping[str, Mapping[str, Parameter]]
"""A step as a manifest has it: its name, with its parameters."""
