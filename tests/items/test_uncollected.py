"""Advice on node ids and folders of manifests of which pytest collects nothing."""

from __future__ import annotations

import os
import re

import pytest

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.errors import ManifestError
from tests.support.project import Project

MANIFEST = "manifests/digits.yaml"
ACCURACY = f"{MANIFEST}::test_accuracy[onnxruntime-cpu]"


def run_named(project: Project, *arguments: str) -> pytest.RunResult:
    """Run pytest without an option or an ini key that names the manifests."""
    return project.pytester.runpytest_subprocess("-q", "--collect-only", *arguments)


def top_keys(project: Project) -> list[str]:
    return re.findall(r"(?m)^(\w+):", project.manifest.read_text())


def test_a_manifest_that_is_named_shows_its_errors_whichever_key_is_misspelt(
    project: Project,
) -> None:
    right = project.manifest.read_text()
    assert {"models", "task", "inputs", "outputs"} <= set(top_keys(project))
    for key in top_keys(project):
        project.manifest.write_text(re.sub(rf"(?m)^{key}:", f"{key}x:", right))
        with pytest.raises(ManifestError) as error:
            load_manifest(project.manifest)
        result = run_named(project, MANIFEST)
        shown = result.stdout.str()
        for line in str(error.value).splitlines():
            assert line.replace(str(project.path / MANIFEST), MANIFEST) in shown
        assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("name", [MANIFEST, ACCURACY])
def test_a_named_manifest_that_is_not_yaml_says_so(project: Project, name: str) -> None:
    project.edit("models:", "modles:")
    project.edit("inputs:", "inputs: [")
    result = run_named(project, name)
    result.stdout.fnmatch_lines(["manifests/digits.yaml:*: is not YAML: *; check the quotes*"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.yaml:1: is empty; a manifest begins with 'name: …'"),
        ("# nothing\n", "a.yaml:1: is empty; a manifest begins with 'name: …'"),
        ("- a\n", "a.yaml:1: holds a list, not keys and values; a manifest begins with 'name: …'"),
        ("jobs: {}\n", "a.yaml is no manifest, which begins with 'name: …'; name one"),
    ],
)
def test_a_named_file_that_is_no_manifest_says_what_it_is(
    pytester: pytest.Pytester, content: str, message: str
) -> None:
    pytester.path.joinpath("a.yaml").write_text(content)
    for named in ("a.yaml", "a.yaml::test_accuracy[x]"):
        result = pytester.runpytest_subprocess("-q", named)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert f"ERROR: {message}" in result.errlines


def test_a_wrong_node_id_says_what_to_write(project: Project) -> None:
    wrong = [ACCURACY.replace("accuracy", "acuracy"), ACCURACY.replace("cpu", "cup")]
    result = run_named(project, *wrong, f"{MANIFEST}::nothing_like_it")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lists = f"'pytest --collect-only -q {MANIFEST}' lists them"
    for one in wrong:
        problem = f"{MANIFEST} has no item {one.partition('::')[2]!r}"
        assert f"ERROR: {problem}; did you mean '{ACCURACY}'? {lists}" in result.errlines
    assert f"ERROR: {MANIFEST} has no item 'nothing_like_it'; {lists}" in result.errlines


def test_a_wrong_node_id_of_a_test_is_left_to_pytest(project: Project) -> None:
    project.pytester.makepyfile(test_own="def test_it(): pass")
    result = run_named(project, MANIFEST, "test_own.py::test_other")
    result.stderr.fnmatch_lines(["ERROR: not found: *test_own.py::test_other", "(no match in *"])


@pytest.mark.parametrize(
    ("named", "shown"), [("manifests", "manifests"), (".", "."), ("", "."), ("-nauto", ".")]
)
def test_a_folder_of_manifests_that_runs_nothing_says_how_to_run_them(
    project: Project, named: str, shown: str
) -> None:
    result = run_named(project, *filter(None, [named]))
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    advice = f"to run those of {shown}, write --mlms-manifests={shown}, or mlms_manifests in *"
    result.stdout.fnmatch_lines([f"mlms: {MANIFEST} looks like a manifest; {advice}"])


def test_a_folder_of_other_yaml_that_runs_nothing_gets_no_advice(
    pytester: pytest.Pytester,
) -> None:
    pytester.path.joinpath("ci.yaml").write_text("jobs: {task: x}\nname: x\nversion: 1\n")
    pytester.path.joinpath(".hidden").mkdir()
    pytester.path.joinpath(".hidden", "m.yaml").write_text("models: []\n")
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.no_fnmatch_line("mlms:*")


def test_advice_on_a_folder_waits_for_no_pipe_and_reads_no_large_file(
    pytester: pytest.Pytester,
) -> None:
    keys = "task: x\nname: x\nversion: 1\n"
    os.mkfifo(pytester.path / "a.yaml")
    pytester.path.joinpath("b.yaml").write_text(keys + "# filled up\n" * 100_000)
    result = pytester.runpytest_subprocess(timeout=60)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.no_fnmatch_line("mlms:*")
    pytester.path.joinpath("c.yaml").write_text(keys)
    pytester.runpytest_subprocess().stdout.fnmatch_lines(["mlms: c.yaml looks like a manifest; *"])


def test_advice_on_a_folder_reads_a_bounded_part_of_it(pytester: pytest.Pytester) -> None:
    for number in range(9):
        pytester.path.joinpath(f"{number}.yaml").write_text("#" + " " * ((1 << 20) - 1))
    pytester.path.joinpath("last.yaml").write_text("models: []\n")
    pytester.runpytest_subprocess().stdout.no_fnmatch_line("mlms:*")
    pytester.path.joinpath("8.yaml").unlink()
    pytester.path.joinpath("7.yaml").unlink()
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(["mlms: last.yaml looks like a manifest; *"])
