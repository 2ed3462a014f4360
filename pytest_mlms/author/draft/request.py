"""The models, the data and the wishes that a manifest is drafted for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_mlms.author.draft.axes import Said
from pytest_mlms.author.draft.data import Data
from pytest_mlms.author.draft.model_files import ModelFiles
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.text import file_stem
from pytest_mlms.provide.stacks.installers import Show


@dataclass(frozen=True)
class DraftRequest:
    """A user's request for a manifest.

    Attributes:
        models: The files of each model.
        stacks: The stack that runs each framework.
        target: The manifest, whose folder paths are relative to.
        data: The data, and at most how many inputs of it.
        labels: A file with the names of the classes.
        task: The task, where the user says it.
        target_columns: The columns of a table that have what is right, where the user says it.
        without_columns: The columns of a table that are no features.
        threads: The threads of the CPU; None for the framework's choice.
        shapes: The shapes of inputs that the user says: sizes, and the word batch.
        options: The options of each framework's predictor.
        predictors: The file of each framework's predictor.
        allow_code: Whether the files of models may run code.
        replaces: Whether files of an earlier draft are replaced.
        made: The files that were made beside the manifest, to be removed if it isn't written.
        cache: The folder of stacks and unpacked archives.
        say: Tells the user a finding.
        show: Shows a step of an installation.
    """

    models: Sequence[ModelFiles]
    stacks: Mapping[str, Stack]
    target: Path
    predictors: Mapping[str, Path]
    cache: Path
    say: Callable[[str], None]
    show: Show
    data: Data | None = None
    most_inputs: int = 1000
    labels: Path | None = None
    task: str | None = None
    target_columns: Sequence[str] = ()
    without_columns: Sequence[str] = ()
    threads: int | None = None
    shapes: Said = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    allow_code: bool = False
    replaces: bool = False
    made: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the manifest."""
        return file_stem(self.target.name)

    def beside(self, suffix: str) -> Path:
        """Return the path of a file of the manifest's own, beside it.

        It is noted as made, unless it was there before. Raises MlmsError where it must not be
        replaced.
        """
        path = self.target.with_name(f"{self.name}-{suffix}")
        if not path.exists():
            self.made.append(path)
        elif path not in self.made and not self.replaces:
            advice = "--force replaces it, --output FILE writes files of other names"
            raise MlmsError(f"{path} is there already; {advice}")
        return path

    def written(self, path: Path) -> str:
        """Return a path as the manifest has it: relative to its folder, unless that is far away."""
        relative = os.path.relpath(path.absolute(), self.target.absolute().parent)
        is_far = relative.startswith(os.path.join("..", "..", ".."))
        return str(path.absolute()) if is_far else Path(relative).as_posix()
