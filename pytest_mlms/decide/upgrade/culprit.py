"""The command that finds the release which made an upgrade worse."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_mlms.config import Config
from pytest_mlms.core.records import Stack
from pytest_mlms.core.redaction import redact
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.declaration import HIDDEN
from pytest_mlms.provide.stacks.declared import (
    folders_of,
    framework_of,
    is_published,
    package_of,
)

_INDEX_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--no-index", "-i", "-f")


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


def other_indexes(case: Case) -> str:
    """Return why no command searches the releases of a case: its sides may be of other indexes.

    "" where they ask the same. A command has the indexes of one stack for both ends. pip doesn't
    tell which index the packages of an interpreter came from: the one that is asked for a framework
    of somebody's own may have a stranger's package of that name.
    """
    sides = (case.stack, case.baseline.stack)
    if all(stack.interpreter for stack in sides) and not is_published(case.stack.framework):
        return "nothing tells which index the packages of both interpreters are from"
    if _indexes(case.stack) == _indexes(case.baseline.stack):
        return ""
    return "the sides have other indexes in their pip_options"


def _indexes(stack: Stack) -> list[str]:
    return [option for option in stack.options if option.startswith(_INDEX_OPTIONS)]


def search_instead(problem: str) -> str:
    """Return what to do where no command searches the releases, which ``problem`` says."""
    return (
        f"which change: no search of an index finds it, as {problem}; declare a stack for each "
        f"version between both sides, and compare it with A by --mlms-against"
    )


def stack_words(case: Case, root: Path, folder: Path) -> Iterator[str]:
    """Yield the options for what stacks have beside the framework's release, typed in ``folder``.

    ``root`` is pytest's root directory, in which and below which the command looks for stacks.

    These are the settings of a candidate that has some, the place of its declaration where the
    command wouldn't look for it, and the requirements that hold on both sides. One with a secret
    in its name can't be written.
    """
    stack = case.stack
    if (stack.place is not None or stack.env) and HIDDEN not in stack.name:
        yield from ("--stack", stack.name)
        if stack.place is not None:
            declared = stack.place.path.absolute().parent
            if declared not in folders_of(root, [case.loaded.path.absolute()]):
                yield f"--mlms-manifests={written_in(folder, declared)}"
    for text in _shared(stack.requirements, case.baseline.stack.requirements):
        if framework_of(package_of(text)) != stack.framework:
            yield from ("--with", text)


def _shared(ours: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield the requirements that hold on both sides: alike, or where one takes any version."""
    for text in ours:
        if text in others or package_of(text) in others:
            yield text
    for text in others:
        if text not in ours and package_of(text) in ours:
            yield text


def session_words(config: Config, folder: Path) -> Iterator[str]:
    """Yield the options of this session that an upgrade depends on, as typed in ``folder``."""
    for predictors in config.predictors:
        yield f"--mlms-predictors={written_in(folder, predictors)}"
    if config.cache is not None and config.cache != default_cache():
        yield f"--mlms-cache={written_in(folder, config.cache)}"
    for pattern in config.env_passthrough:
        yield f"--mlms-env-passthrough={pattern}"
    if config.allow_code:
        yield "--mlms-allow-code"
    if config.outputs is not None:
        yield f"--mlms-outputs={config.outputs or 'all'}"
    if config.clock is not None:
        yield f"--mlms-clock={config.clock}"
    if config.seed is not None:
        yield f"--mlms-seed={config.seed}"


def written_in(folder: Path, path: Path) -> str:
    """Return a path as a person in a folder writes it."""
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
