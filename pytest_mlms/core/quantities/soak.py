"""Quantities of a soak: what time does to a process."""

from __future__ import annotations

from typing import Literal

from pytest_mlms.core.quantities.quantity import Column, Quantity


def _of_soak(
    name: str, description: str, title: str, unit: str, form: Literal["value", "interval"]
) -> Quantity:
    return Quantity(
        name=name,
        unit=unit,
        better="lower",
        kind="soak",
        description=description,
        limit_key=name,
        column=Column("soaks", title, form),
    )


SOAK = [
    _of_soak(
        "soak_growth",
        "memory that each call adds to what a process and its device hold, over a soak",
        "growth a call",
        "B",
        "interval",
    ),
    _of_soak(
        "soak_threads", "threads that a process got more of all the time", "threads", "", "value"
    ),
    _of_soak(
        "soak_descriptors",
        "file descriptors that a process got more of all the time",
        "descriptors",
        "",
        "value",
    ),
    _of_soak(
        "soak_latency_drift",
        "how much the median latency of a call rises over a soak",
        "latency drift",
        "fraction",
        "interval",
    ),
    _of_soak(
        "soak_throughput_drift",
        "how much the time for an input, of which throughput is the inverse, rises over a soak",
        "throughput drift",
        "fraction",
        "interval",
    ),
    _of_soak(
        "soak_outputs",
        "largest difference from the first outputs of a soak, as a multiple of rounding",
        "outputs",
        "",
        "value",
    ),
]
"""Quantities of one process over a long time."""

SOAK_LIMITS = {
    "soak_growth": 100.0,
    "soak_threads": 0.0,
    "soak_descriptors": 0.0,
    "soak_latency_drift": 0.10,
    "soak_throughput_drift": 0.10,
    "soak_outputs": 1.0,
}
"""Quantity of a soak -> the largest value that may be where the manifest says none."""
