"""The project of a command: the same root, settings and stacks that pytest has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.config import Config
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.project import find_project, project_stacks
from tests.support.project import Project

pytest.importorskip("onnx")  # pytester forgets it, and it can't be imported twice

LINES = {
    "mlms_predictors": "own\nmore/own",
    "mlms_manifests": "manifests",
    "mlms_results": "out",
    "mlms_cache": "~/files",
    "mlms_env_passthrough": "A_*",
    "mlms_allow_code": "yes",
}
INI = "\n".join(f"{key} =\n    " + value.replace("\n", "\n    ") for key, value in LINES.items())
TABLE = """\
mlms_predictors = ["own", "more/own"]
mlms_manifests = ["manifests"]
mlms_results = "out"
mlms_cache = "~/files"
mlms_env_passthrough = ["A_*"]
mlms_allow_code = "yes"
"""
NATIVE = TABLE.replace('"yes"', "true")
NAMES = [key.removeprefix("mlms_") for key in LINES]
FILES = {
    "pytest.ini": f"[pytest]\n{INI}",
    ".pytest.ini": f"[pytest]\n{INI}",
    "tox.ini": f"[pytest]\n{INI}",
    "setup.cfg": f"[tool:pytest]\n{INI}",
    "pyproject.toml": f"[tool.pytest.ini_options]\n{TABLE}",
    "pytest.toml": f"[pytest]\n{NATIVE}",
}


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    """A folder with what its settings name, in which commands run."""
    for name in ("own", "more/own", "manifests/a"):
        (pytester.path / name).mkdir(parents=True)
    (pytester.path / "manifests/a/m.yaml").write_text("")
    return pytester.path


@pytest.mark.parametrize("name", FILES)
def test_settings_are_those_that_pytest_reads_by_its_own_rules(
    name: str, pytester: pytest.Pytester, folder: Path
) -> None:
    if name == "pytest.toml" and pytest.version_tuple < (9, 0):
        pytest.skip("pytest reads pytest.toml from 9.0 on")
    (folder / name).write_text(FILES[name])
    config = pytester.parseconfigure("-p", "no:cacheprovider")
    project = find_project([Path("manifests")])
    assert (project.root, project.file) == (config.rootpath, config.inipath)
    options = Config.from_pytest(config)
    assert {name: project.value(name) for name in NAMES} == {
        name: getattr(options, name) for name in NAMES
    }
    assert options.predictors == (folder / "own", folder / "more/own")


@pytest.mark.parametrize("is_in_file", [True, False])
def test_settings_of_addopts_are_taken_before_those_of_keys(
    is_in_file: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addopts = "-q -p no:cacheprovider --mlms-predictors=more/own --mlms-allow-code"
    text = "[pytest]\nmlms_predictors = own\n"
    if is_in_file:
        text += f"addopts = {addopts}\n"
    else:
        monkeypatch.setenv("PYTEST_ADDOPTS", addopts)
    (folder / "pytest.ini").write_text(text)
    project = find_project()
    assert project.value("predictors") == (folder / "more/own",)
    assert project.value("allow_code") is True
    assert project.value("cache") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[pytest\n", "the project's settings can't be read: "),
        ("[pytest]\nmlms_allow_code = perhaps\n", "write true or false"),
        ("[pytest]\naddopts = --mlms-cache\n", "addopts of pytest: "),
        ("[pytest]\naddopts = -k 'a b\n", 'No closing quotation in "-k \'a b"; correct it'),
        ("[pytest]\nmlms_predictors = own\n    gone\n", "gone; name a folder that exists"),
    ],
)
def test_settings_that_can_not_be_read_are_an_error(text: str, expected: str, folder: Path) -> None:
    (folder / "pytest.ini").write_text(text)
    with pytest.raises(MlmsError, match=re.escape(expected)):
        [find_project().value(name) for name in ("allow_code", "predictors")]


@pytest.mark.parametrize(
    "words",
    [
        "-c ci.ini",
        "--config-file=ci.ini",
        "-k 'a b' -o mlms_cache=ours",
        "--rootdir=manifests -o mlms_cache=../ours",
        "--override-ini=mlms_cache=ours",
    ],
)
def test_another_ini_file_root_or_value_of_the_environment_is_that_of_pytest(
    words: str, pytester: pytest.Pytester, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nmlms_cache = theirs\n")
    (folder / "ci.ini").write_text("[pytest]\nmlms_cache = ours\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", words)
    config = pytester.parseconfigure("-p", "no:cacheprovider")
    project = find_project()
    assert (project.root, project.file) == (config.rootpath, config.inipath)
    assert project.value("cache") == Config.from_pytest(config).cache == folder / "ours"


@pytest.mark.parametrize("words", ["-k 'a", "-c", "-c gone.ini"])
def test_words_of_the_environment_that_pytest_can_not_read_are_an_error(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", words)
    with pytest.raises(MlmsError):
        find_project()


def test_the_history_is_that_which_pytest_writes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_mlms.cli.arguments import take_settings
    from tests.support.printed import mlms_options

    monkeypatch.delenv("MLMS_HISTORY", raising=False)

    def history(text: str) -> str:
        (folder / "pytest.ini").write_text(f"[pytest]\n{text}\n")
        options = mlms_options(["mlms", "history", "show"])
        take_settings(options)
        return str(options.history)

    assert history("") == "mlms-results/history.sqlite"
    assert history("mlms_results = out") == str(folder / "out/history.sqlite")
    assert history("mlms_history = nights.sqlite") == str(folder / "nights.sqlite")
    assert history("mlms_history = postgresql://x/y") == "postgresql://x/y"


def test_stacks_are_declared_in_the_root_the_folders_of_manifests_and_those_below(
    folder: Path,
) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nmlms_manifests = manifests\n")
    for place, name in (("manifests/a", "below"), ("manifests", "here1"), (".", "root")):
        entry = f"{name}: {{framework: labour, interpreter: current}}\n"
        (folder / place / "stacks.yaml").write_text(entry)
    hidden = folder / "manifests/.hidden"
    hidden.mkdir()
    (hidden / "stacks.yaml").write_text("root: {framework: labour, interpreter: current}\n")
    assert set(project_stacks()) == {"here", "root", "here1", "below"}
    assert set(project_stacks([Path("manifests/a/m.yaml")], [])) == {
        "here",
        "root",
        "here1",
        "below",
    }


def test_commands_and_pytest_know_the_same_predictors_and_stacks(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.path)
    ini = "[pytest]\nmlms_manifests = manifests\nmlms_predictors = own\n"
    (project.path / "pytest.ini").write_text(ini)
    own = project.path / "own"
    own.mkdir()
    (own / "labour2.py").write_text("def versions():\n    return {}\n")
    text = "mine: {framework: labour2, interpreter: current}\n"
    (project.folder / "stacks.yaml").write_text(text)
    assert main(["lint", "manifests"]) == 0
    assert main(["stack", "list"]) == 0
    assert "mine" in capsys.readouterr().out
    collected = project.pytester.runpytest_subprocess("--collect-only", "-q", "--mlms-stack=mien")
    collected.stderr.fnmatch_lines(["*stacks are declared in manifests/*stacks.yaml)*"])
    assert main(["stack", "show", "mien"]) == 2
    assert "stacks are declared in manifests/" in capsys.readouterr().err


def test_lint_of_a_manifest_reads_the_stacks_that_pytest_reads_for_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.path)
    (project.folder / "stacks.yaml").write_text("mine: {framework: labour2}\n")
    assert main(["lint", str(project.manifest.relative_to(project.path))]) == 1
    assert "stacks.yaml:1: " in capsys.readouterr().out


def test_commands_and_pytest_look_for_stacks_only_where_pytest_collects(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.path)
    ini = "[pytest]\nmlms_manifests = manifests\nnorecursedirs = attic old*\n"
    (project.path / "pytest.ini").write_text(ini)
    for name in ("attic", "build"):
        folder = project.folder / name
        folder.mkdir()
        (folder / "stacks.yaml").write_text(f"of-{name}: {{interpreter: current}}\n")
    (project.folder / "attic" / "stacks.yaml").write_text("stacks: [broken]\n")
    assert main(["stack", "list"]) == 0
    assert "of-build" in capsys.readouterr().out
    command = ("--collect-only", "-q", "--mlms-stack=of-build")
    assert project.pytester.runpytest_subprocess(*command).ret == pytest.ExitCode.OK
