"""Manifests as pytest items: ids, selection, and what pytest's own options do with them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.project import Project

IDS = [
    "test_accuracy[onnxruntime-cpu]",
    *(
        f"test_performance[onnxruntime-cpu-b{size}-{scenario}]"
        for scenario in ("single_stream", "offline")
        for size in (1, 8, 64)
    ),
]
ALL = [f"manifests/digits.yaml::{name}" for name in IDS]


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def test_a_manifest_becomes_items_with_readable_ids(project: Project) -> None:
    assert collected(project.run("--collect-only", "-q")) == ALL


def test_items_are_selected_by_keyword_mark_and_node_id(project: Project) -> None:
    assert collected(project.run("--collect-only", "-q", "-k", "b8 and offline", "-m", "mlms")) == [
        ALL[5]
    ]
    assert collected(project.run("--collect-only", "-q", "-m", "not mlms")) == []
    ids = [ALL[3], "manifests/digits.yaml::test_accuracy"]
    assert collected(project.run("--collect-only", "-q", *ids)) == [ALL[3], ALL[0]]


def test_marks_carry_the_case_where_pytest_can_match_it(project: Project) -> None:
    if pytest.version_tuple < (8, 3):
        pytest.skip("pytest matches the arguments of marks from 8.3 on")
    chosen = project.run("--collect-only", "-q", "-m", "mlms(kind='performance', batch_size=8)")
    assert collected(chosen) == [ALL[2], ALL[5]]


def test_a_setup_plan_names_the_fixtures_and_runs_nothing(project: Project) -> None:
    result = project.run("--setup-plan", "-k", "accuracy")
    result.stdout.fnmatch_lines(["*SETUP*F mlms_recorder*", "*SETUP*F mlms_predictor *"])
    assert not (project.path / "mlms-results").exists()


def test_verbose_lines_name_the_manifest_alone(project: Project) -> None:
    project.use_faulty()
    result = project.run("-v", "-k", "accuracy", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["manifests/digits.yaml::test_accuracy?faulty-cpu? PASSED*"])


def test_without_paths_only_the_manifests_run_and_with_paths_only_those(project: Project) -> None:
    project.pytester.makepyfile(test_own="def test_own(): pass")
    (project.folder / "notes.txt").write_text("not a manifest")
    (project.folder / "test_beside.py").write_text("def test_beside(): pass")
    assert collected(project.run("--collect-only", "-q")) == [
        *ALL,
        "manifests/test_beside.py::test_beside",
    ]
    both = project.run("--collect-only", "-q", "test_own.py", "manifests/digits.yaml")
    assert collected(both) == ["test_own.py::test_own", *ALL]


def test_where_only_manifests_run_the_conftest_files_of_other_tests_are_not_needed(
    project: Project,
) -> None:
    (project.path / "tests").mkdir()
    (project.path / "tests" / "conftest.py").write_text("import a_package_that_only_tests_need")
    (project.folder / "conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--by-manifests')"
    )
    project.pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--by-root')")
    project.pytester.makeini("[pytest]\ntestpaths = tests\n")
    assert collected(project.run("--collect-only", "-q", "--by-root=1", "--by-manifests=2")) == ALL


def test_the_ini_file_says_where_manifests_are_too(project: Project) -> None:
    lines = [
        "mlms_manifests = manifests",
        "mlms_strict = true",
        "mlms_duration = 0.5",
        "python_functions = check_*",
    ]
    project.pytester.makeini("\n".join(["[pytest]", *lines]))
    result = project.pytester.runpytest_subprocess("--collect-only", "-q")
    assert collected(result) == ALL


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("mlms_duration = long", "mlms_duration in *tox.ini: 'long' is not a number, 0 or more"),
        ("mlms_strict = maybe", "mlms_strict in *tox.ini: *'maybe'; write true or false"),
        (
            "mlms_manifests = nowhere",
            "mlms_manifests in *tox.ini: there is no *nowhere; name a folder that exists",
        ),
    ],
)
def test_a_wrong_ini_key_is_named_with_its_file(project: Project, line: str, says: str) -> None:
    project.pytester.makeini(f"[pytest]\n{line}\n")
    result = project.pytester.runpytest_subprocess("--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {says}"])


def test_a_single_file_and_several_folders_can_be_named(project: Project) -> None:
    shutil.copytree(project.folder, project.path / "more")
    named = ["--mlms-manifests=more/digits.yaml", "--collect-only", "-q", "-k", "accuracy"]
    assert [line.partition("/")[0] for line in collected(project.run(*named))] == [
        "manifests",
        "more",
    ]


def test_manifests_outside_the_root_folder_run(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "m"
    project.use_faulty()
    shutil.copytree(project.folder, outside)
    project.run(f"--mlms-manifests={outside}", "-k", "accuracy").assert_outcomes(passed=2)
    relative = project.run(
        f"--mlms-manifests={os.path.relpath(outside, project.path)}", "--collect-only", "-q"
    )
    assert len(collected(relative)) == 4


def test_a_faulty_manifest_is_a_collection_error_with_all_its_faults(project: Project) -> None:
    project.edit("float32", "fp32")
    project.edit("5 ms", "5")
    result = project.run("--collect-only")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting manifests/digits.yaml*",
            "manifests/digits.yaml:16: inputs[[]0[]].element_type: 'fp32' is not known; write one of*",
            "manifests/digits.yaml:44: thresholds.latency_p90.max: 5 has no unit; write one of*",
        ]
    )
    assert "Traceback" not in result.stdout.str()


def test_marks_of_the_manifest_reach_the_items(project: Project) -> None:
    project.use_faulty(at="predict", fault="memory")
    text = project.manifest.read_text()
    project.manifest.write_text(
        text + "\nmarks: {xfail: {'faulty-cpu': not today}, skip: {'*-b8-*': too slow}}\n"
    )
    result = project.run("-rsx")
    result.assert_outcomes(xfailed=1, skipped=1)
    assert {item["verdict"]: item["outcome"] for item in project.items()} == {
        "XFAILED": "xfailed",
        "SKIPPED": "skipped",
    }
    result.stdout.fnmatch_lines(
        ["SKIPPED*too slow", "XFAIL manifests/digits.yaml::test_accuracy?faulty-cpu? - not today"]
    )
    result.stdout.no_fnmatch_line("*nothing was measured*")
    alone = project.run("--mlms-strict", "-k", "b8")
    alone.stdout.fnmatch_lines(
        ["mlms: nothing was measured: the only item was skipped, -rs says why"]
    )


def test_a_manifest_without_a_dataset_has_no_accuracy_item(project: Project) -> None:
    text = project.manifest.read_text()
    start, end = text.index("dataset:"), text.index("evaluate:")
    text = (text[:start] + text[end:]).replace("  top1: {min: 0.95}\n  top5: {min: 99 %}\n", "")
    project.manifest.write_text(text)
    assert collected(project.run("--collect-only", "-q")) == ALL[1:]


def test_collection_imports_no_framework_and_opens_no_connection(project: Project) -> None:
    project.pytester.makeconftest(
        """
        import socket, sys

        def refuse(*_):
            raise AssertionError("the network was used")

        socket.socket.connect = refuse

        def pytest_collection_finish(session):
            assert len(session.items) == 7
            assert "onnxruntime" not in sys.modules
            assert "mlms_predictors.onnxruntime" not in sys.modules
        """
    )
    project.edit("graph: digits_cnn.onnx", "graph: https://127.0.0.1:9/digits_cnn.onnx")
    assert project.run("--collect-only").ret == 0


def test_without_options_the_plugin_adds_nothing(project: Project) -> None:
    project.pytester.makepyfile("def test_own(): pass")
    plain = project.pytester.runpytest_subprocess("-p", "no:mlms", "-p", "no:cacheprovider")
    ours = project.pytester.runpytest_subprocess("-p", "no:cacheprovider")
    ours.assert_outcomes(passed=1)

    def stable(result: pytest.RunResult) -> list[str]:
        left_out = ("plugins:", "===", "rootdir")
        return [line for line in result.outlines if not line.startswith(left_out)]

    assert stable(ours) == stable(plain)
    assert not (project.path / "mlms-results").exists()


def test_the_plugin_can_be_switched_off(project: Project) -> None:
    project.pytester.makepyfile("def test_own(): pass")
    project.pytester.runpytest_subprocess("-p", "no:mlms").assert_outcomes(passed=1)
    result = project.pytester.runpytest_subprocess("-p", "no:mlms", "--mlms-manifests=manifests")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (
            "--mlms-manifests=nowhere",
            "--mlms-manifests: there is no *nowhere; name a folder that exists",
        ),
        ("--mlms-predictors=nowhere", "--mlms-predictors: there is no *nowhere; *"),
        (
            "--mlms-manifests=manifests/labels.txt",
            "--mlms-manifests: *labels.txt is no .yaml file; name a manifest*",
        ),
        (
            "--mlms-manifests=empty",
            "--mlms-manifests: *empty has no .yaml file; name a manifest, or a folder of them",
        ),
        ("--mlms-results=tox.ini", "--mlms-results: *tox.ini is a file; name a folder"),
        (
            "--mlms-trace-functions=libc*:read",
            "--mlms-trace-functions: *; write --mlms-trace=library, too",
        ),
        ("--mlms-results=tox.ini/results", "--mlms-results: *tox.ini is a file; name a folder"),
        ("--mlms-duration=soon", "*--mlms-duration: 'soon' is not a number, 0 or more"),
        ("--mlms-processes=0", "*--mlms-processes: '0' is not a whole number, 1 or more"),
        ("--mlms-processes=1.5", "*--mlms-processes: '1.5' is not a whole number, 1 or more"),
        ("--mlms-budget=nan", "*--mlms-budget: 'nan' is not a number, 0 or more"),
    ],
)
def test_a_wrong_option_says_what_it_must_be(project: Project, option: str, says: str) -> None:
    (project.path / "empty" / "below").mkdir(parents=True)
    result = project.run(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{says}"])


def test_an_upgrade_is_not_traced_and_says_so(project: Project) -> None:
    result = project.run("--mlms-aa", "--mlms-trace=layer")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--mlms-trace: upgrades are not traced; *"])
    project.pytester.makeini("[pytest]\nmlms_trace = layer\n")
    project.run("--mlms-aa", "--collect-only", "-q").stdout.fnmatch_lines(["*::test_upgrade*"])


def test_users_own_tests_can_use_the_fixtures(project: Project) -> None:
    project.use_faulty(answer=2)
    (project.path / "own").mkdir()
    (project.path / "own" / "test_own.py").write_text(
        """
import numpy, pytest

@pytest.mark.mlms(manifest="../manifests/digits.yaml")
def test_answers_two(mlms_case, mlms_predictor, mlms_dataset, mlms_device, mlms_stack):
    assert (mlms_case.id, mlms_device, mlms_stack.name) == ("faulty-cpu", "cpu", "here")
    logits = mlms_predictor.predict(mlms_dataset.batch([0, 1, 2]))["logits"]
    assert logits.argmax(axis=1).tolist() == [2, 2, 2]

def test_without_a_mark(mlms_case):
    pass

@pytest.mark.mlms(manifest="../manifests/digits.yaml", kind="performance")
def test_fails_as_a_test_does(mlms_case, mlms_recorder):
    assert mlms_case.batch_size == 7
"""
    )
    result = project.run("own")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*mlms_case: mark the test with @pytest.mark.mlms(manifest='PATH')*", "*assert 8 == 7*"]
    )
    assert {item["verdict"] for item in project.items()} == {"PASSED", "FAILED"}


def test_a_mark_that_names_no_manifest_is_a_collection_error(project: Project) -> None:
    project.pytester.makepyfile(
        "import pytest\n@pytest.mark.mlms(manifest='none.yaml')\ndef test_own(mlms_case): pass"
    )
    result = project.pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(
        ["*none.yaml:1: can't be read: No such file or directory; check the path*"]
    )


def test_a_framework_comes_from_an_installed_package_too(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.project import PREDICTORS

    site = project.path / "site"
    (site / "their_package").mkdir(parents=True)
    (site / "their_package" / "__init__.py").write_text("")
    shutil.copy(PREDICTORS / "faulty.py", site / "their_package" / "theirs.py")
    text = (
        Path(site / "their_package" / "theirs.py")
        .read_text()
        .replace('"faulty": "1.2.3"', '"theirs": "4.0"')
    )
    (site / "their_package" / "theirs.py").write_text(text)
    (site / "their_package-1.0.dist-info").mkdir()
    (site / "their_package-1.0.dist-info" / "METADATA").write_text(
        "Name: their-package\nVersion: 1.0\n"
    )
    points = "[mlms_predictors]\ntheirs = their_package.theirs\n"
    (site / "their_package-1.0.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.setenv("PYTHONPATH", str(site))
    project.use_faulty()
    project.edit("framework: faulty", "framework: theirs >=4")
    project.run("-k", "accuracy").assert_outcomes(passed=1)
    assert project.items()[0]["versions"]["theirs"] == "4.0"


def test_a_manifest_outside_of_the_root_directory_has_a_name_too(project: Project) -> None:
    (project.path / "root").mkdir()
    options = [
        "--rootdir=root",
        "--mlms-manifests=manifests/digits.yaml",
        "--collect-only",
        "-q",
        "-k",
        "accuracy",
    ]
    result = project.pytester.runpytest_subprocess(*options)
    result.stdout.fnmatch_lines(["digits.yaml::test_accuracy?onnxruntime-cpu?"])
