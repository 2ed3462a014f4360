"""A manifest becomes a module of real test items: the functions of suite.py, parametrized with its cases.

What is private to pytest, or has changed between its versions, is in this file, and tests run it on 8 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from pytest_mlms.cases import Case, cases_of
from pytest_mlms.errors import ManifestError, MlmsError
from pytest_mlms.manifest.load import Loaded, load
from pytest_mlms.provision.stacks import stacks_for
from pytest_mlms.records import Kind
from pytest_mlms.session import SESSION

__all__ = ["ManifestFile", "is_manifest", "parametrize"]

KINDS: tuple[Kind, ...] = ("accuracy", "performance")


def is_manifest(path: Path, roots: Iterable[Path]) -> bool:
    """Return whether the file is a manifest by its place: YAML below one of ``roots``, or one of them itself."""
    return path.suffix in (".yaml", ".yml") and any(path.is_relative_to(root) for root in roots)


class ManifestFile(pytest.Module):
    """A module whose object is suite.py; what differs from file to file are the cases."""

    def _getobj(self) -> ModuleType:
        from pytest_mlms import suite

        return suite

    @cached_property
    def loaded(self) -> Loaded:
        """The manifest; raises CollectError with every fault."""
        try:
            return load(self.path, self.config.stash[SESSION].predictors)
        except ManifestError as error:
            raise self.CollectError(str(error)) from None

    def funcnamefilter(self, name: str) -> bool:
        """Take suite.py's functions, whatever python_functions says, where there are cases for them."""
        return name in {f"test_{kind}" for kind in KINDS if self.cases(kind)}

    def cases(self, kind: Kind) -> list[Case]:
        """Return the manifest's cases of a kind."""
        return cases_of(self.loaded, kind, stacks_for)

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return the items, each located at its model's line of the manifest."""
        for item in super().collect():
            if isinstance(item, pytest.Function):
                case = cast(Case, item.callspec.params["mlms_case"])
                path, _, name = item.nodeid.partition("::")
                item.__dict__["location"] = (path, case.place().line - 1, name)
            yield item


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a function that uses ``mlms_case`` the cases of its own manifest, or of the one that its mark names."""
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
    metafunc.parametrize("mlms_case", [pytest.param(case, id=case.id, marks=_marks(case)) for case in cases])


def _cases_of_mark(metafunc: pytest.Metafunc, manifest: str, kind: Kind) -> list[Case]:
    path = metafunc.definition.path.parent / manifest
    try:
        loaded = load(path, metafunc.config.stash[SESSION].predictors)
    except MlmsError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    return cases_of(loaded, kind, stacks_for)


def _marks(case: Case) -> list[Any]:
    facts = {"framework": case.stack.framework, "device": case.device, "batch_size": case.batch_size}
    marks = [pytest.mark.mlms(kind=case.kind, scenario=case.scenario, **facts)]
    return marks + [getattr(pytest.mark, name)(reason=reason) for name, reason in case.marks]
