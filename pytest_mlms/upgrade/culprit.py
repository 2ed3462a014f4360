"""The command that finds the release which made an upgrade worse."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_mlms.artifacts.fetch import default_cache
from pytest_mlms.cases import Case
from pytest_mlms.config import Config
from pytest_mlms.redaction import redact
from pytest_mlms.stacks.declaration import HIDDEN
from pytest_mlms.stacks.declared import framework_of, package_of

__all__ = ["culprit_command", "from_here", "point_id", "session_words", "stack_words"]


def point_id(
    file: str,
    device: str,
    batch_size: int,
    variant: str | None = None,
    scenario: str | None = None,
    shape: str | None = None,
) -> str:
    """Return the id that ``mlms culprit`` takes for a point of a manifest."""
    point = "-".join(filter(None, (variant, device, f"b{batch_size}", scenario, shape)))
    return f"{file}::test_upgrade[{point}]"


def culprit_command(
    point: str, good: str, bad: str, quantity: str, more: Sequence[str] = ()
) -> str:
    """Return the command for two releases, such as onnxruntime==1.30.0, with ``more`` options."""
    words = ["mlms", "culprit", point, "--good", good, "--bad", bad, "--quantity", quantity, *more]
    return shlex.join(map(redact, words))


def stack_words(case: Case) -> Iterator[str]:
    """Yield the options for what stacks have beside the framework's release.

    These are the settings of a candidate that has some, and the requirements of both sides. One
    with a secret in its name can't be written.
    """
    stack = case.stack
    if (stack.place is not None or stack.env) and HIDDEN not in stack.name:
        yield from ("--stack", stack.name)
    for text in stack.requirements:
        is_release = framework_of(package_of(text)) == stack.framework
        if text in case.baseline.stack.requirements and not is_release:
            yield from ("--with", text)


def session_words(config: Config) -> Iterator[str]:
    """Yield the options of this session that stacks and predictors depend on."""
    for folder in config.predictors:
        yield f"--mlms-predictors={from_here(folder)}"
    if config.cache is not None and config.cache != default_cache():
        yield f"--mlms-cache={from_here(config.cache)}"
    for pattern in config.env_passthrough:
        yield f"--mlms-env-passthrough={pattern}"
    if config.allow_code:
        yield "--mlms-allow-code"


def from_here(path: Path) -> str:
    """Return a path as a person in the current folder writes it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
