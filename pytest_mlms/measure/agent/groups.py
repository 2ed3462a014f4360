"""The groups of requests that an agent may answer, and those that a case needs.

docs/agents.md describes them. An agent that is a program of its own needs not have all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pytest_mlms.provide.cases import Case

GROUPS: Mapping[str, tuple[str, ...]] = {
    "use": ("hello", "load", "predict"),
    "performance": ("run", "outputs", "usage"),
    "upgrades": ("bind", "turn", "repeats", "idle", "hold", "move"),
    "loads": ("load_run", "served"),
    "LoadGen": ("loadgen",),
    "traces": ("trace",),
    "layers": ("profile",),
    "inner outputs": ("inner",),
    "structure": ("structure", "peaks"),
    "code of manifests": ("open_code", "preprocess", "postprocess"),
    "pictures": ("decode",),
}
"""The requests of each group; an agent has all of a group or none, and always the first."""


def missing_requests(case: Case, answered: Collection[str] | None) -> list[str]:
    """Return the requests that a case needs and its agent doesn't answer; None: it answers all."""
    if answered is None:
        return []
    needed = [request for group in _groups_of(case) for request in GROUPS[group]]
    return [request for request in needed if request not in answered]


def _groups_of(case: Case) -> Iterator[str]:
    yield "use"
    if case.kind in ("performance", "soak", "trace", "upgrade"):
        yield "performance"
    if case.kind == "upgrade" or (case.kind == "performance" and case.device != "cpu"):
        yield "upgrades"
    if case.load is not None:
        yield "loads"
    if case.kind == "trace":
        yield "traces"
