"""``mlms advise --data``: the models of a zoo that answer best for a person's labelled inputs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_mlms.cli.advise import OF_MEASURING, candidates_of, means_of, objective_of, refuse
from pytest_mlms.cli.arguments import output_width, say
from pytest_mlms.core.errors import MlmsError

if TYPE_CHECKING:
    from pytest_mlms.decide.advice.trial import Trial

_ZOO = "manifests"
"""The folder of manifests where neither the command nor the project names one."""
_SEED = 1  # of the bootstrap: the same data gives the same ranking
_OF_ANOTHER = ("limits", "batch_sizes", "threads", "options", "hosts", "tolerance", *OF_MEASURING)


def advise_by_data(options: argparse.Namespace) -> int:
    """Print the ranking of models, and what has the best one measured on the data.

    Return 1 where no model answers for the data. Raises MlmsError.
    """
    from pytest_mlms.decide.advice.trial import dataset_text
    from pytest_mlms.show.report.advice import best_of, ranking_of

    refuse(options, "--data ranks models by their answers", _OF_ANOTHER)
    trial = _tried(options)
    for line in ranking_of(trial, output_width()):
        print(line)
    for line in best_of(trial):
        print(line)
    for text in dict.fromkeys(map(dataset_text, trial.leaders)):
        print(f"\n{text}")
    return 0 if trial.leaders else 1


def _tried(options: argparse.Namespace) -> Trial:
    """Return what the models of the zoo answer for the data."""
    from pytest_mlms.author.draft.data import recognise_data
    from pytest_mlms.decide.advice.candidates import Choices
    from pytest_mlms.decide.advice.folder import Means, fit, zoo_of
    from pytest_mlms.decide.advice.parsing import parse_target
    from pytest_mlms.decide.advice.trial import quantity_of, try_models
    from pytest_mlms.measure.agent.registry import find_predictors
    from pytest_mlms.project import download_limits, find_project
    from pytest_mlms.provide.artifacts.fetch import fetch

    data = recognise_data(options.data)
    project = find_project(options.paths)
    paths = options.paths or project.manifests or _own_zoo(project.root)
    zoo = zoo_of(paths, data, options.task, find_predictors(options.predictors), say)
    task = zoo[0].manifest.task
    asked = objective_of(options, parse_target).name if options.objective else None
    quantity = quantity_of(task, asked)
    say(f"{quantity} of {task}; manifests for such data: {len(zoo)}")
    fetching = partial(fetch, cache=options.cache, limits=download_limits(project))
    able, refused = fit(zoo, data, Means(fetching, options.results / "advice-data", say))
    candidates = candidates_of(able, options, Choices()) if able else []
    with contextlib.ExitStack() as folders:
        means = means_of(options, "throughput", max(len(candidates), 1), _SEED, folders)
        return try_models(candidates, quantity, means, refused)


def _own_zoo(root: Path) -> Sequence[Path]:
    for folder in (Path(_ZOO), root / _ZOO):
        if folder.is_dir():
            return [folder]
    advice = "name manifests or a folder of them, or write mlms_manifests in pytest's ini file"
    raise MlmsError(f"there is no folder {_ZOO} to look for models in; {advice}")
