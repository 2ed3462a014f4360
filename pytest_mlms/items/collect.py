"""Collection: a manifest becomes a module with the tests of suite.py and its own cases.

All that is private to pytest, or has changed between its versions, is in this file; tests run it
with pytest 8 and 9.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from pytest_mlms.author.loading import NoManifestError, load_manifest
from pytest_mlms.config import MANIFEST_SUFFIXES
from pytest_mlms.core.errors import AgentError, ManifestError, MlmsError, OutputError
from pytest_mlms.core.records import Kind
from pytest_mlms.items.selection import select_cases
from pytest_mlms.items.warned import warn_at
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.reading import DATASET_FILES
from pytest_mlms.manifest.types import instead
from pytest_mlms.provide.cases import Case, case_of
from pytest_mlms.provide.stacks.schema import STACK_FILES
from pytest_mlms.session import FIRST_WORKERS, SESSION, Session
from pytest_mlms.warning_types import MlmsWarning

KINDS: tuple[Kind, ...] = ("accuracy", "agreement", "performance", "upgrade", "trace", "soak")
"""The kinds of items, in the order in which a manifest's items run."""


_NO_MANIFESTS = (*STACK_FILES, *DATASET_FILES)

_EXPECTED = (pytest.fail.Exception, AssertionError, AgentError, OutputError)
"""The failures that an xfail expects: broken limits, and models that a framework can't run.

A file with another digest, a stack that can't be made, or a fault of ours is no expected failure.
"""


def is_manifest(path: Path, roots: Iterable[Path]) -> bool:
    """Return whether a file is a manifest: YAML that is one of ``roots``, or below one of them."""
    if path.suffix not in MANIFEST_SUFFIXES or path.name in _NO_MANIFESTS:
        return False
    return any(path.is_relative_to(root) for root in roots)


def warn_of_hidden(folder: Path, config: pytest.Config) -> None:
    """Warn of manifests below a folder that is in norecursedirs, unless its name begins with ".".

    Dependencies and environments have YAML of their own.
    """
    session = config.stash[SESSION]
    hiding = [name for name in config.getini("norecursedirs") if fnmatch(folder.name, name)]
    if not hiding or folder.name.startswith(".") or folder.name in ("node_modules", "venv"):
        return
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if is_manifest(path, session.config.manifests) and session.worker in FIRST_WORKERS:
                problem = f"{path} isn't collected: {hiding[0]} is in norecursedirs"
                text = f"{problem}; name the folder, or set norecursedirs in pytest's ini file"
                warn_at(str(path), 1, text, MlmsWarning)
                return


class ManifestFile(pytest.Module):
    """A manifest as a test module: its object is suite.py, and its cases are its parameters."""

    @classmethod
    def from_parent(cls, parent: Any, **arguments: Any) -> Any:
        """Make the collector.

        pytest gives a file outside of the root directory its name alone as node id, which others
        may have, too. It gets its path from the root directory, as the controller of a remote
        worker has it.
        """
        made = super().from_parent(parent, **arguments)
        config = made.config
        nodeid = _id_outside(made.path, config.rootpath, made._session.config.outside)
        if not nodeid:
            return made
        return super().from_parent(parent, **arguments, nodeid=nodeid)

    @cached_property
    def loaded(self) -> LoadedManifest:
        """The manifest. Raises CollectError with all of its errors."""
        try:
            config = self._session.config
            return load_manifest(self.path, self._session.predictors, config.allow_code)
        except ManifestError as error:
            raise self.CollectError(str(error)) from error
        except UserWarning as warning:  # by -W error
            raise self.CollectError(f"{self.path}: {warning}") from None

    def cases(self, kind: Kind) -> list[Case]:
        """Return the cases of a kind that this session runs.

        Upgrades replace all others but soaks. There are traces where levels were asked for. The
        control of a host is only timed.
        """
        config = self._session.config
        if self.loaded.manifest.control and kind != "performance":
            return []
        if kind == "soak":
            return self._cases_of(kind) if config.soak else []
        if config.upgrade != (kind == "upgrade"):
            return []
        if kind == "trace" and not config.trace:
            return []
        if kind == "accuracy" and not self.loaded.manifest.has_accuracy:
            return []
        return self._cases_of(kind)

    def _cases_of(self, kind: Kind) -> list[Case]:
        if kind not in self._cases:
            self._cases[kind] = _cases(self.loaded, kind, self._session)
        return self._cases[kind]

    def funcnamefilter(self, name: str) -> bool:
        """Return True: what is collected here is a test, whatever the option python_functions says.

        The items of a manifest are found by ``collect``, not by the names in suite.py.
        """
        return True

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Return the items, each located at its model's line of the manifest.

        The tests of suite.py are offered to pytest as a module's are, for the kinds that
        have cases; suite.py has no fixtures and no set-up that pytest would have to look for.
        """
        from pytest_mlms.items.warned import (
            warn_of_idle_marks,
            warn_of_thread_variables,
            warn_without_limits,
        )

        try:
            loaded = self.loaded
        except self.CollectError as error:
            if not self._is_stranger(error):
                raise
            self._session.strangers.append(self.path)
            return
        cases = [case for kind in KINDS for case in self.cases(kind)]
        warn_without_limits(loaded, cases, self._session)
        warn_of_idle_marks(loaded, cases, self._session)
        warn_of_thread_variables(loaded, cases, self._session)
        kinds = [kind for kind in KINDS if self.cases(kind)]
        for kind in kinds:
            for item in self._items(f"test_{kind}"):
                case = case_of(item) if isinstance(item, pytest.Function) else None
                if case is not None:
                    path, _, name = item.nodeid.partition("::")
                    item.__dict__["location"] = (path, case.place().line - 1, name)
                yield item

    def _is_stranger(self, error: BaseException) -> bool:
        """Return whether a file of another kind is only below a folder of manifests."""
        is_named = self.path in self._session.config.manifests
        return isinstance(error.__cause__, NoManifestError) and not is_named

    def _items(self, name: str) -> Iterable[pytest.Item | pytest.Collector]:
        """Return what pytest and its plugins make of a test of suite.py."""
        test = getattr(self.obj, name)
        made = self.ihook.pytest_pycollect_makeitem(collector=self, name=name, obj=test)
        if isinstance(made, list):
            return made
        return [] if made is None else [made]

    def _getobj(self) -> ModuleType:
        from pytest_mlms.items import suite

        return suite

    @property
    def _session(self) -> Session:
        return self.config.stash[SESSION]

    @cached_property
    def _cases(self) -> dict[Kind, list[Case]]:
        return {}


def _id_outside(path: Path, root: Path, outside: Mapping[str, str]) -> str:
    """Return the node id of a file outside of the root directory; "" for one that is inside."""
    if not path.is_relative_to(root):
        return Path(os.path.relpath(path, root)).as_posix()
    for name, folder in outside.items():
        if path.is_relative_to(root / name):
            return Path(folder, path.relative_to(root / name)).as_posix()
    return ""


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a test that uses ``mlms_case`` the cases of its own manifest, or of its mark's."""
    if "mlms_case" not in metafunc.fixturenames:
        return
    definition = metafunc.definition
    mark = definition.get_closest_marker("mlms")
    arguments = mark.kwargs if mark else {}
    kind: Kind = arguments.get("kind", "accuracy")
    file = definition.getparent(ManifestFile)
    if file is not None:
        parameters = _parameters(file.cases(kind))
    elif "manifest" in arguments:
        if kind not in KINDS:
            _refuse_mark(definition, f"unknown kind {kind!r}; {instead(str(kind), KINDS)}")
        named = definition.path.parent / arguments["manifest"]
        path = Path(os.path.normpath(named))  # as items of the manifest itself have it
        if not path.is_file():
            _refuse_mark(definition, f"there is no {path}; name a manifest, from the test's folder")
        # A manifest without a classification has cases of accuracy, too: the test measures what
        # it likes.
        session = metafunc.config.stash[SESSION]
        try:
            loaded = load_manifest(path, session.predictors, session.config.allow_code)
        except MlmsError as error:
            raise pytest.Collector.CollectError(str(error)) from None
        cases = _cases(loaded, kind, session)
        parameters = _parameters(cases) or [_without_case(path, kind)]
    else:
        return
    metafunc.parametrize("mlms_case", parameters)


def _parameters(cases: Iterable[Case]) -> list[Any]:
    return [pytest.param(case, id=case.id, marks=_marks(case)) for case in cases]


def _without_case(path: Path, kind: Kind) -> Any:
    """Return the parameter of a user's test that has no case: it is skipped, and says why."""
    reason = f"{path}: no case of kind {kind} in this run"
    return pytest.param(None, id="no-case", marks=pytest.mark.skip(reason=reason))


def _refuse_mark(definition: pytest.Function, problem: str) -> NoReturn:
    path, line, _ = definition.location
    place = f"{path}:{(line or 0) + 1}"
    raise pytest.Collector.CollectError(f"{place}: mark mlms: {problem}")


def _cases(loaded: LoadedManifest, kind: Kind, session: Session) -> list[Case]:
    session.offered_frameworks.update(*(model.names for model in loaded.manifest.models))
    try:
        return select_cases(loaded, kind, session)
    except MlmsError as error:
        raise pytest.Collector.CollectError(str(error)) from None


def _marks(case: Case) -> list[Any]:
    """Return the mark that -m selects by, and the xfail and skip marks of the manifest."""
    own = pytest.mark.mlms(
        model=case.loaded.manifest.name,
        kind=case.kind,
        scenario=case.scenario,
        framework=case.stack.framework,
        device=case.device,
        batch_size=case.batch_size,
    )
    marks = [own]
    for name, reason in case.marks:
        if name == "xfail":
            marks.append(pytest.mark.xfail(reason=reason, raises=_EXPECTED))
        else:
            marks.append(pytest.mark.skip(reason=reason))
    return marks
