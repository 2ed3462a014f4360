"""What the README shows is what there is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pytest_mlms.host.machine import machine_state
from pytest_mlms.manifest import load
from pytest_mlms.manifest.thresholds import AgreementThreshold
from pytest_mlms.options import OPTIONS
from pytest_mlms.quantities import QUANTITIES
from tests.support.project import DIGITS, ROOT, Project

README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found
    return found[1]


def test_the_manifest_that_it_explains_is_valid_and_like_the_shipped_one(tmp_path: Path) -> None:
    shutil.copytree(DIGITS, tmp_path / "digits")
    (tmp_path / "digits" / "digits.yaml").write_text(block("yaml"))
    explained, shipped = (
        load(tmp_path / "digits" / "digits.yaml").manifest,
        load(DIGITS / "digits.yaml").manifest,
    )
    assert set(map(str, explained.models)) <= set(map(str, shipped.models))
    for section in ("inputs", "outputs", "evaluate", "thresholds"):
        assert getattr(explained, section) == getattr(shipped, section)


def test_the_test_that_it_shows_runs(project: Project) -> None:
    code = block("python").replace("../manifests/digits/digits.yaml", "manifests/digits.yaml")
    project.pytester.makepyfile("import pytest\n\n" + code)
    project.pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_every_option_and_every_quantity_is_in_it() -> None:
    assert all(f"`{option.flag}" in README for option in OPTIONS)
    limited = [name for name, quantity in QUANTITIES.items() if name == quantity.limit_key]
    named = [*limited, *AgreementThreshold.model_fields]
    assert all(name in README or name.replace("latency", "") in README for name in named)
    results = (ROOT / "docs" / "results.md").read_text()
    assert all(name in results or name.replace("latency", "") in results for name in QUANTITIES)


def test_no_option_is_in_the_documents_that_is_not_there() -> None:
    known = {option.flag for option in OPTIONS}
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "ARCHITECTURE.md",
        *(ROOT / "docs").glob("*.md"),
    ):
        assert set(re.findall(r"--mlms-[a-z-]*[a-z]", path.read_text())) <= known, path


def test_every_fact_about_the_machine_is_in_the_document_of_the_results() -> None:
    state = machine_state()
    named = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs" / "results.md").read_text()))
    assert (set(state) | set(state["unavailable"])) <= named


def test_its_commands_are_there() -> None:
    for command in re.findall(r"^bash (\S+)", README, re.MULTILINE):
        assert (ROOT / command).exists()
