"""Requests for an evaluation: a manifest of the folder, and options of a short list."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.trace import LEVELS

_NAMES = ("manifest", "stack", "against", "trace", "full")


class BadRequest(MlmsError):
    """An evaluation was asked for that can't be, or must not be, started."""


@dataclass(frozen=True)
class EvaluationRequest:
    """A manifest by its path below the folder, and options; empty ones are left out."""

    manifest: str
    stack: str = ""
    against: str = ""
    trace: tuple[str, ...] = ()
    full: bool = False

    def options(self) -> Iterator[str]:
        """Yield the options of pytest; each is one word, so that no value becomes an option."""
        if self.stack:
            yield f"--mlms-stack={self.stack}"
        if self.against:
            yield f"--mlms-against={self.against}"
        if self.trace:
            yield f"--mlms-trace={','.join(self.trace)}"
        if self.full:
            yield "--mlms-full"


def read_request(
    fields: Mapping[str, Any], manifests: Collection[str], stacks: Collection[str]
) -> EvaluationRequest:
    """Return what a form or a JSON object asks for.

    ``manifests`` and ``stacks`` are those that may be named. Raises BadRequest.
    """
    for name in fields:
        if name not in _NAMES:
            raise BadRequest(f"{name[:50]!r} is no field; there are {', '.join(_NAMES)}")
    manifest = fields.get("manifest")
    if not isinstance(manifest, str) or manifest not in manifests:
        raise BadRequest("there is no such manifest in the portal's folder; name one of its list")
    return EvaluationRequest(
        manifest=manifest,
        stack=_stack(fields.get("stack"), stacks),
        against=_stack(fields.get("against"), stacks),
        trace=_levels(fields.get("trace")),
        full=fields.get("full") in (True, "on", "true"),
    )


def _stack(value: object, stacks: Collection[str]) -> str:
    if not value:
        return ""
    if not isinstance(value, str) or value not in stacks:
        raise BadRequest(f"there is no such stack; there are {', '.join(sorted(stacks))}")
    return value


def _levels(value: object) -> tuple[str, ...]:
    if not value:
        return ()
    names = str(value).split(",")
    if any(name not in LEVELS for name in names):
        raise BadRequest(f"there is no such level of traces; there are {', '.join(LEVELS)}")
    return tuple(level for level in LEVELS if level in names)
