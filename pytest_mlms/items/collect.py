"""A manifest becomes a module of real test items: the functions of suite.py, parametrized with its
cases.

What is private to pytest, or has changed between its versions, is in this file, and tests run it on
8 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from pytest_mlms.cases import Case, cases_of, upgrades_of
from pytest_mlms.config import MANIFEST_SUFFIXES
from pytest_mlms.errors import ManifestError, MlmsError
from pytest_mlms.manifest.load import LoadedManifest, load
from pytest_mlms.records import Kind, Stack
from pytest_mlms.session import SESSION
from pytest_mlms.stacks.declared import DEFAULT, stacks_for
from pytest_mlms.stacks.labels import visit_of
from pytest_mlms.stacks.schema import STACK_FILES

__all__ = ["ManifestFile", "is_manifest", "parametrize"]

KINDS: tuple[Kind, ...] = ("accuracy", "performance", "agreement", "upgrade", "trace")


def is_manifest(path: Path, roots: Iterable[Path]) -> bool:
    """Return whether the file is a manifest by its place.

    YAML below one of ``roots``, or one of them itself.
    """
    if path.suffix not in MANIFEST_SUFFIXES or path.name in STACK_FILES:
        return False
    return any(path.is_relative_to(root) for root in roots)


class ManifestFile(pytest.Module):
    """A module whose object is suite.py; what differs from file to file are the cases."""

    @classmethod
    def from_parent(cls, parent: Any, **facts: Any) -> Any:
        """The public constructor.

        To pytest a file outside of the root directory, if named itself, has an empty id.
        """
        made = super().from_parent(parent, **facts)
        return made if made.nodeid else super().from_parent(parent, **facts, nodeid=made.path.name)

    def _getobj(self) -> ModuleType:
        from pytest_mlms.items import suite

        return suite

    @cached_property
    def loaded(self) -> LoadedManifest:
        """The manifest; raises CollectError with every fault."""
        try:
            return load(self.path, self.config.stash[SESSION].predictors)
        except ManifestError as error:
            raise self.CollectError(str(error)) from None

    @cached_property
    def _cases(self) -> dict[Kind, list[Case]]:
        return {}

    def funcnamefilter(self, name: str) -> bool:
        """Take suite.py's functions, whatever python_functions says, where there are cases for
        them.
        """
        return any(name == f"test_{kind}" and self.cases(kind) for kind in KINDS)

    def cases(self, kind: Kind) -> list[Case]:
        """Return the manifest's cases of a kind: upgrades only, or none.

        Traces only where levels are asked for.
        """
        config = self.config.stash[SESSION].config
        if config.upgrade != (kind == "upgrade") or (kind == "trace" and not config.trace):
            return []
        if kind not in self._cases:
            self._cases[kind] = _cases(self.loaded, kind, self.config)
        return self._cases[kind]

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return the items, each located at its model's line of the manifest."""
        for item in super().collect():
            if isinstance(item, pytest.Function):
                case = cast(Case, item.callspec.params["mlms_case"])
                path, _, name = item.nodeid.partition("::")
                item.__dict__["location"] = (path, case.place().line - 1, name)
            yield item


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a function that uses ``mlms_case`` the cases of its own manifest, or of the one that its
    mark names.
    """
    if "mlms_case" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("mlms")
    kind: Kind = mark.kwargs.get("kind", "accuracy") if mark else "accuracy"
    file = metafunc.definition.getparent(ManifestFile)
    if file is not None:
        cases = file.cases(kind)
    elif mark and "manifest" in mark.kwargs:
        cases = _cases_of_mark(metafunc, mark.kwargs["manifest"], kind)
    else:
        return
    metafunc.parametrize(
        "mlms_case", [pytest.param(case, id=case.id, marks=_marks(case)) for case in cases]
    )


def _cases_of_mark(metafunc: pytest.Metafunc, manifest: str, kind: Kind) -> list[Case]:
    path = metafunc.definition.path.parent / manifest
    try:
        loaded = load(path, metafunc.config.stash[SESSION].predictors)
    except MlmsError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    return _cases(loaded, kind, metafunc.config)


def _cases(loaded: LoadedManifest, kind: Kind, config: pytest.Config) -> list[Case]:
    """Return the cases of a kind.

    There are upgrades only where the command line says against what.
    """
    session = config.stash[SESSION]
    try:
        chosen, against, here = (
            session.chosen_stacks,
            session.baseline_stacks,
            session.declared_stacks["here"],
        )
    except MlmsError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    offered = {model.name for model in loaded.manifest.models}

    def stacks(framework: str, among: Sequence[Stack] = chosen) -> list[Stack]:
        return stacks_for(framework, among, offered, here)

    def reference(framework: str) -> Stack | None:
        own = session.declared_stacks.get(framework)
        named = [own] if own and framework != DEFAULT else []  # ONNX Runtime is where pytest runs
        # an interpreter that is only a path may lack it
        meant = [stack for stack in chosen if stack.framework or stack.interpreter == "current"]
        return next(iter(stacks(framework, [*meant, *named, here])), None)

    if kind != "upgrade":
        found = cases_of(loaded, kind, stacks, reference)
        return [case for case in found if kind == "performance" or visit_of(case.stack.name) <= 1]
    if session.config.aa:
        return [case for case in upgrades_of(loaded, stacks, stacks) if case.against == case.stack]
    found = (
        upgrades_of(loaded, stacks, lambda framework: stacks(framework, against)) if against else []
    )
    return [case for case in found if case.against != case.stack]


def _marks(case: Case) -> list[Any]:
    facts = {
        "framework": case.stack.framework,
        "device": case.device,
        "batch_size": case.batch_size,
    }
    marks = [pytest.mark.mlms(kind=case.kind, scenario=case.scenario, **facts)]
    return marks + [getattr(pytest.mark, name)(reason=reason) for name, reason in case.marks]
