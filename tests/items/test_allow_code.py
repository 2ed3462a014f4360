"""Tests that only the user lets a model's files run code; a manifest can't."""

from __future__ import annotations

import pytest

from tests.support.project import Project

PLAIN = """models:
  - framework: plain
    graph: digits_cnn.onnx
    sha256: 237cb7d43b2c3390032ae68b3c9f9d5f570a7620e6614908a597254d68566f63
"""

FORBIDDEN = "*code is forbidden*"
ALLOWED = "*code is allowed*"


def check_code(project: Project, *options: str) -> None:
    """Code is allowed with --mlms-allow-code, and forbidden without."""
    project.run(*options).stdout.fnmatch_lines([FORBIDDEN])
    project.run(*options, "--mlms-allow-code").stdout.fnmatch_lines([ALLOWED])


@pytest.fixture
def teller(project: Project) -> Project:
    """A project whose predictor tells whether code is allowed."""
    project.edit("onnxruntime >=1.17", "teller")
    project.set_thresholds()
    return project


def test_a_predictor_obeys_the_command_line(teller: Project) -> None:
    check_code(teller, "-k", "accuracy")


def test_a_manifest_can_not_allow_code(teller: Project) -> None:
    teller.edit("models:\n  - framework", "models:\n  - options: {allow_code: true}\n    framework")
    teller.run("-k", "accuracy").stdout.fnmatch_lines([FORBIDDEN])


def test_the_reference_of_an_agreement_obeys_the_command_line(teller: Project) -> None:
    teller.edit("models:\n", PLAIN)
    teller.set_thresholds("  agreement: {reference: teller}")
    check_code(teller, "-k", "agreement")


@pytest.mark.slow
def test_both_sides_of_an_upgrade_obey_the_command_line(teller: Project) -> None:
    teller.edit("models:\n", PLAIN)
    check_code(teller, "-k", "b8", "--mlms-aa", "--mlms-budget=0")
