"""The state of the plugin in one pytest session."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest

from pytest_mlms.config import Config

if TYPE_CHECKING:
    from pytest_mlms.core.records import Stack
    from pytest_mlms.manifest.load import Origin
    from pytest_mlms.measure.agent.helpers import CodeAgent
    from pytest_mlms.measure.agent.predictor import Predictor
    from pytest_mlms.measure.evaluate.kept_outputs import OutputsStore, Reference
    from pytest_mlms.measure.pipeline import Dataset
    from pytest_mlms.provide.host.capabilities import Capabilities
    from pytest_mlms.provide.stacks.declared import DeclaredStacks


Value = TypeVar("Value")


def _always(value: object) -> bool:
    return True


class SingleEntryCache(Generic[Value]):
    """Keeps the last value, or the value of the last open context, until another is asked for.

    A value that is no longer usable is made again.
    """

    def __init__(self, is_usable: Callable[[Value], bool] = _always) -> None:
        self._is_usable = is_usable
        self._entries: dict[Hashable, Value] = {}  # one at most
        self._context = contextlib.ExitStack()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value kept for ``key``; otherwise keep the one that ``make`` returns."""
        return self.open(key, lambda: contextlib.nullcontext(make()))

    def open(self, key: Hashable, make: Callable[[], AbstractContextManager[Value]]) -> Value:
        """Return the value that is kept for ``key``.

        Otherwise close the context that is kept, and open the one that ``make`` returns.
        """
        if key in self._entries and self._is_usable(self._entries[key]):
            return self._entries[key]
        self.close()
        value = self._context.enter_context(make())
        self._entries[key] = value
        return value

    def close(self) -> None:
        """Forget the value, and close its context."""
        self._entries.clear()
        self._context.close()


REPORTER = "mlms-reporter"
"""The name of the plugin that writes results, in the process that the user started."""

WORKER = "mlms-fleet-worker"
"""The name of the plugin that sends results to that process, in a worker of xdist."""


FIRST_WORKERS = (None, "gw0")
"""Names of the process that warns: the only one, or the first worker of xdist."""


def _local_artifact(loaded: Any, artifact: Any) -> Any:
    return artifact


def _shared() -> SingleEntryCache[Any]:
    """Return a cache of a process of ours, which is of no use once its agent has ended."""
    return SingleEntryCache(lambda entry: entry.agent.alive)


@dataclass(eq=False, repr=False)
class Session:
    """The options of a session, its folder, and what items share.

    ``run_folder`` is named after the run; with xdist the controller and its workers share one.
    ``worker`` is xdist's name for this process, None without xdist. ``predictor``, ``dataset`` and
    ``reference`` keep what the last item used: ``predictor`` is the agent that items share, while
    it lives, and ``code`` the one that runs the Python of a manifest. ``outputs`` are those for
    whole datasets. ``offered_frameworks`` are those that the collected manifests have models for,
    and the variants of these. ``originals`` are the collected manifests of MLModelScope,
    ``strangers`` YAML files that are no manifests, and ``ungated`` manifests without a limit.
    ``unavailable`` has the reason why the models of a stack could not be opened, such as a missing
    framework; ``available`` has the stacks whose models could. ``missing_here`` has the packages of
    a framework that this interpreter lacks. ``bring`` brings a local artifact of the controller to
    this host. ``drafted`` says what was found out about the models of --mlms-model,
    ``history_notices`` why the run will be queued for its history.
    """

    config: Config
    run_folder: Path
    worker: str | None = None
    predictor: SingleEntryCache[Predictor] = field(default_factory=_shared)
    code: SingleEntryCache[CodeAgent] = field(default_factory=_shared)
    dataset: SingleEntryCache[Dataset] = field(default_factory=SingleEntryCache)
    reference: SingleEntryCache[Reference] = field(default_factory=SingleEntryCache)
    offered_frameworks: set[str] = field(default_factory=set)
    originals: list[Origin] = field(default_factory=list)
    strangers: list[Path] = field(default_factory=list)
    ungated: set[Path] = field(default_factory=set)
    unavailable: dict[Hashable, str] = field(default_factory=dict)
    available: set[Hashable] = field(default_factory=set)
    missing_here: dict[str, list[str]] = field(default_factory=dict)
    bring: Callable[[Any, Any], Any] = _local_artifact
    drafted: tuple[str, ...] = ()
    history_notices: tuple[str, ...] = ()
    _log_numbers: itertools.count[int] = field(default_factory=itertools.count)

    @cached_property
    def outputs(self) -> OutputsStore:
        """The outputs of models for whole datasets that items share."""
        from pytest_mlms.measure.evaluate.kept_outputs import OutputsStore

        return OutputsStore()

    @cached_property
    def predictors(self) -> dict[str, Path]:
        """The file of each framework's predictor."""
        from pytest_mlms.measure.agent.registry import find_predictors

        return find_predictors(self.config.predictors)

    @cached_property
    def declared_stacks(self) -> DeclaredStacks:
        """The stacks of stacks.yaml and pyproject.toml, by name.

        Raises ManifestError with every error of those files.
        """
        from pytest_mlms.provide.stacks.declared import declared_stacks

        config = self.config
        return declared_stacks(config.root, config.manifests, config.norecursedirs)

    @cached_property
    def chosen_stacks(self) -> list[Stack]:
        """The stacks that --mlms-stack names; none without it. Raises MlmsError."""
        from pytest_mlms.provide.stacks.declared import check_labels, choose
        from pytest_mlms.provide.stacks.labels import side_stacks

        if self.config.sides:
            check_labels(self.config.sides, self.predictors)
            return side_stacks(self.config.sides)
        return choose(self.config.stack, self._stacks_by_name, self.predictors)

    @cached_property
    def baseline_stacks(self) -> list[Stack]:
        """The stacks that --mlms-against names, beside a lock file's. Raises MlmsError."""
        from pytest_mlms.provide.stacks.declared import choose

        if self.config.sides:
            return []  # each side has items of its own, on hosts of its own
        names = self.config.baselines
        return choose(names, self._stacks_by_name, self.predictors, "--mlms-against")

    @cached_property
    def _stacks_by_name(self) -> DeclaredStacks:
        """The declared stacks, and stacks of the variants that options name."""
        from pytest_mlms.provide.stacks.declared import DeclaredStacks, variant_stacks

        declared = self.declared_stacks
        if all(name in declared or name == "all" for name in self._stack_names):
            return declared
        found = {**variant_stacks(self.config.manifests), **declared}
        return DeclaredStacks(found, declared.folders, declared.files)

    @property
    def _stack_names(self) -> tuple[str, ...]:
        return (*self.config.stack, *self.config.baselines)

    @property
    def draft(self) -> Path | None:
        """The manifest that is drafted for --mlms-model, in the run's folder; None without it."""
        if not self.config.model:
            return None
        from pytest_mlms.core.text import file_stem

        return self.run_folder / f"{file_stem(self.config.model[0])}.yaml"

    @cached_property
    def cache(self) -> Path:
        """The folder for fetched artifacts."""
        from pytest_mlms.provide.artifacts.fetch import default_cache

        return self.config.cache or default_cache()

    def capabilities(self, config: pytest.Config) -> Capabilities:
        """Return what this host offers, gathered once."""
        from pytest_mlms.provide.host.capabilities import gather

        return gather(config, self.cache, self.predictors)

    def next_log(self, framework: str) -> Path:
        """Return the path of a new agent's log; a resumed run has logs of earlier sessions, too."""
        prefix = self.run_folder / "agents" / f"{framework}-{self.worker or 'main'}"
        paths = (Path(f"{prefix}-{number}.log") for number in self._log_numbers)
        return next(path for path in paths if not path.exists())


SESSION = pytest.StashKey[Session]()
"""The key of pytest's config that has the session."""
