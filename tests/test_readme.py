"""The documents agree with the code: examples run, and options, quantities and commands exist."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from pytest_mlms.cli import main
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.manifest import load
from pytest_mlms.manifest.thresholds import AgreementThreshold
from pytest_mlms.options import OPTIONS
from pytest_mlms.provide.host.machine import machine_state
from tests.support.project import DIGITS, ROOT, Project

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

README = (ROOT / "README.md").read_text()
MANIFESTS = (ROOT / "docs" / "manifest.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
RESULTS = (ROOT / "docs" / "results.md").read_text()
METHODOLOGY = (ROOT / "docs" / "methodology.md").read_text()


def documents() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "ARCHITECTURE.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]


def example(page: str, language: str) -> str:
    """Return the first block of a page in a language."""
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


def is_named(quantity: str, text: str) -> bool:
    """Return whether a quantity is in a document; several latencies are named by their ends."""
    return quantity in text or quantity.replace("latency", "") in text


def test_the_manifest_that_a_page_explains_is_valid_and_like_the_shipped_one(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "digits"
    shutil.copytree(DIGITS, folder)
    (folder / "digits.yaml").write_text(example(MANIFESTS, "yaml"))
    explained = load(folder / "digits.yaml").manifest
    shipped = load(DIGITS / "digits.yaml").manifest
    assert set(map(str, explained.models)) <= set(map(str, shipped.models))
    for section in ("inputs", "outputs", "evaluate", "thresholds"):
        assert getattr(explained, section) == getattr(shipped, section)


def test_the_test_that_it_shows_runs(project: Project) -> None:
    code = example(README, "python").replace(
        "../manifests/digits/digits.yaml", "manifests/digits.yaml"
    )
    project.pytester.makepyfile("import pytest\n\n" + code)
    project.pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_each_extra_is_in_the_table_of_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    _, _, table = README.partition("| extra | for |")
    rows = re.findall(r"^\| (`.*?) \|", table.partition("\n\n")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(project["optional-dependencies"])


@pytest.mark.parametrize("name", main._SUBCOMMANDS)
def test_each_subcommand_is_in_the_page_of_commands(name: str) -> None:
    assert f"| `mlms {name}" in COMMANDS


@pytest.mark.parametrize("flag", [option.flag for option in OPTIONS])
def test_every_option_is_in_its_page(flag: str) -> None:
    assert f"`{flag}" in (ROOT / "docs" / "options.md").read_text()


@pytest.mark.parametrize("name", AgreementThreshold.model_fields)
def test_every_key_of_an_agreement_is_in_the_page_on_manifests(name: str) -> None:
    assert f"`{name}" in MANIFESTS


@pytest.mark.parametrize(
    "name", [name for name, quantity in QUANTITIES.items() if quantity.kind != "accuracy"]
)
def test_every_quantity_that_all_tasks_have_is_in_the_documents(name: str) -> None:
    where = METHODOLOGY if QUANTITIES[name].kind == "upgrade" else RESULTS
    assert is_named(name, where)
    if QUANTITIES[name].limit_key == name:
        assert is_named(name, MANIFESTS)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_a_document_names_no_option_that_does_not_exist(path: Path) -> None:
    known = {option.flag for option in OPTIONS}
    named = set(re.findall(r"--mlms-[a-z-]*[a-z]", path.read_text()))
    assert named <= known


def test_every_fact_about_the_machine_is_in_the_document_of_the_results() -> None:
    state = machine_state()
    named = set(re.findall(r"`([a-z0-9_]+)`", RESULTS))
    assert set(state) <= named
    assert set(state["unavailable"]) <= named


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_the_commands_of_a_document_exist(path: Path) -> None:
    for command in re.findall(r"^bash (\S+)", path.read_text(), re.MULTILINE):
        assert (ROOT / command).exists(), command
