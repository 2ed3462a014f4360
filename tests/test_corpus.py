"""Files of users that are hostile or damaged: each is read, or refused with an error of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from tests.support.fuzzing import CORPUS, TARGETS, Outcome, Target
from tests.support.project import ROOT

MUTANTS = {
    "manifests": 200,
    "legacy": 100,
    "stacks": 100,
    "labels": 100,
    "arrivals": 100,
    "coco": 100,
    "npz": 100,
    "records": 100,
    "pictures": 100,
    "models": 60,
    "bundles": 100,
    "sounds": 100,
    "locks": 100,
    "tokenizers": 100,
    "lines": 60,
    "answers": 200,
    "messages": 200,
    "uploads": 100,
    "heads": 200,
    "predictions": 200,
    "tensors": 200,
    "inferences": 200,
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_each_seed_and_its_mutants_are_read_or_refused(target: Target, tmp_path: Path) -> None:
    found = []
    for number in range(len(target.seeds) + MUTANTS[target.name]):
        outcome = target.run(number, tmp_path)
        if outcome.problem:
            found.append(f"{outcome.mutant}: {outcome.problem}")
    assert found == []


def test_each_folder_of_the_corpus_is_fuzzed() -> None:
    folders = [path.name for path in CORPUS.iterdir() if path.is_dir()]
    assert sorted(folders) == sorted(TARGETS)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_a_mutant_is_given_by_its_number(target: Target) -> None:
    numbers = range(len(target.seeds), len(target.seeds) + 20)
    mutants = [target.mutant(number) for number in numbers]
    assert mutants == [target.mutant(number) for number in numbers]
    assert len(set(mutants)) > 10


def fail(data: bytes, folder: Path) -> None:
    raise KeyError("x")


def refuse(data: bytes, folder: Path) -> None:
    raise MlmsError("no; write another")


def test_an_error_that_is_not_ours_is_a_failure_with_its_traceback(tmp_path: Path) -> None:
    target = replace(TARGETS["labels"], read=fail)
    outcome = target.run(3, tmp_path)
    assert (outcome.mutant, outcome.problem) == ("labels:3", "KeyError: 'x'")
    assert "in fail" in outcome.trace
    assert replace(target, read=refuse).run(3, tmp_path) == Outcome("labels:3")


def take_memory(data: bytes, folder: Path) -> None:
    bytes(200 << 20)


def test_a_mutant_that_takes_more_memory_than_it_may_is_a_failure(tmp_path: Path) -> None:
    target = replace(TARGETS["labels"], read=take_memory)
    assert target.run(3, tmp_path) == Outcome("labels:3", is_read=True)
    outcome = replace(target, most_memory=100 << 20).run(3, tmp_path)
    assert outcome.problem.startswith("MemoryError")


def test_a_mutant_is_read_again_by_its_name() -> None:
    command = [sys.executable, "ci/fuzz.py", "labels:1", "npz:4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "labels:1: is read, or refused as it should be",
        "npz:4: is read, or refused as it should be",
    ]
