"""What the plugin holds for one pytest session.

The options, the run, and the last thing opened of each sort.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_mlms.config import Config

if TYPE_CHECKING:
    from pytest_mlms.records import Stack

__all__ = ["REPORTER", "SESSION", "WORKER", "Session", "SingleEntryCache"]

REPORTER, WORKER = "mlms-reporter", "mlms-fleet-worker"
"""The names of the plugins that take results.

Where they are written, and in a worker that sends them there.
"""


class SingleEntryCache:
    """Holds the last context opened, for as long as the next user asks for the same.

    Closes it otherwise.
    """

    def __init__(self) -> None:
        self._key: Hashable = None
        self._value: Any = None
        self._open = contextlib.ExitStack()

    def get(self, key: Hashable, make: Callable[[], contextlib.AbstractContextManager[Any]]) -> Any:
        """Return what is held for ``key``, or close what is held and open another."""
        if key != self._key:
            self.close()
            self._value = self._open.enter_context(make())
            self._key = key
        return self._value

    def close(self) -> None:
        """Close what is held."""
        self._key = self._value = None
        self._open.close()


@dataclass
class Session:
    """``run_folder`` has the name of the run; with xdist it is the controller's and that of all
    workers.

    ``worker`` is xdist's name for this process, None outside of it. ``bring`` puts a local artifact
    on this host.
    """

    config: Config
    run_folder: Path
    worker: str | None = None
    predictor: SingleEntryCache = field(default_factory=SingleEntryCache)
    dataset: SingleEntryCache = field(default_factory=SingleEntryCache)
    reference: SingleEntryCache = field(default_factory=SingleEntryCache)
    scores: dict[Hashable, Any] = field(default_factory=dict)
    bring: Callable[[Any, Any], Any] = lambda loaded, artifact: artifact
    _count: itertools.count[int] = field(default_factory=itertools.count)

    @cached_property
    def predictors(self) -> dict[str, Path]:
        """The file of each framework's predictor."""
        from pytest_mlms.agent.registry import find_predictors

        return find_predictors(self.config.predictors)

    @cached_property
    def declared_stacks(self) -> dict[str, Stack]:
        """The stacks of stacks.yaml and pyproject.toml, by name.

        Raises ManifestError with their faults.
        """
        from pytest_mlms.stacks.declared import declared_stacks

        return declared_stacks(self.config.root, self.config.manifests)

    @cached_property
    def chosen_stacks(self) -> list[Stack]:
        """The stacks that --mlms-stack names, none where it isn't used; raises MlmsError."""
        from pytest_mlms.stacks.declared import check_labels, choose
        from pytest_mlms.stacks.labels import side_stacks

        if self.config.sides:
            check_labels(self.config.sides, self.predictors)
            return side_stacks(self.config.sides)
        return choose(self.config.stack, self.declared_stacks, self.predictors)

    @cached_property
    def baseline_stacks(self) -> list[Stack]:
        """The stacks that --mlms-against names; raises MlmsError."""
        from pytest_mlms.stacks.declared import choose

        if self.config.sides:
            return []  # both are measured by items of their own, on hosts of their own
        return choose(self.config.against, self.declared_stacks, self.predictors, "--mlms-against")

    @cached_property
    def cache(self) -> Path:
        """The folder for fetched artifacts."""
        from pytest_mlms.artifacts.fetch import default_cache

        return self.config.cache or default_cache()

    def next_log(self, framework: str) -> Path:
        """Return the path of a new agent's log."""
        return (
            self.run_folder
            / "agents"
            / f"{framework}-{self.worker or 'main'}-{next(self._count)}.log"
        )


SESSION = pytest.StashKey[Session]()
