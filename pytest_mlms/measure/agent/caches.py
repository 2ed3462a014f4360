"""Caches in which compilers of frameworks keep their work: empty for each process, or filled once.

A predictor's file declares how its framework is told the folder: ``CACHES = {"env": {NAME: TEXT},
"options": {NAME: TEXT}}``, with ``{caches}`` for the folder.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from mlms_predictors._run.options import caches_of

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.agent.opening import PredictorSpec

SideName = Literal["a", "b"]

_OF_DRIVERS = {"CUDA_CACHE_PATH": "{caches}/cuda"}
"""Variables of a GPU's driver, which compiles kernels for any framework."""

_SIZES: dict[SideName, str] = {"a": "cache_bytes_against", "b": "cache_bytes"}


@dataclass
class Caches:
    """The folders of an item's caches, which are removed with ``folders``.

    ``facts`` are the bytes that the last process of each side left in its own, by the names that
    results have for them.
    """

    folders: contextlib.ExitStack
    facts: dict[str, int] = field(default_factory=dict)
    _kept: dict[SideName, Path] = field(default_factory=dict)

    @contextlib.contextmanager
    def given(self, spec: PredictorSpec, side: SideName) -> Iterator[PredictorSpec]:
        """Let an agent of a side keep its caches where the case says; as it likes without that."""
        case = spec.case
        if case.caches is None:
            yield spec
            return
        if case.stack.container:
            place = case.loaded.place("evaluate", "caches")
            problem = f"stack {case.stack.name} is a container, whose caches begin as in its image"
            raise MlmsError(f"{place}: {problem}; leave 'caches' out")
        with contextlib.ExitStack() as ends:
            keeps = case.caches == "warm"
            folder = self._kept.get(side) or _new_folder(self.folders if keeps else ends)
            if keeps:
                self._kept[side] = folder
            declared = caches_of(spec.predictor)
            env = {**_OF_DRIVERS, **declared.get("env", {})}
            yield replace(
                spec, env=_filled(env, folder), options=_filled(declared.get("options", {}), folder)
            )
            files = [path for path in folder.rglob("*") if path.is_file()]
            self.facts[_SIZES[side]] = sum(path.stat().st_size for path in files)


def _new_folder(ends: contextlib.ExitStack) -> Path:
    """Return a folder that is removed at the end."""
    made = tempfile.TemporaryDirectory(prefix="mlms-caches-", ignore_cleanup_errors=True)
    return Path(ends.enter_context(made))


def _filled(texts: Mapping[str, str], folder: Path) -> dict[str, str]:
    return {name: text.replace("{caches}", str(folder)) for name, text in texts.items()}
