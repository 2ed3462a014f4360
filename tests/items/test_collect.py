"""Tests of manifests as pytest items: ids, selection, and pytest's own options."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch

import pytest
import yaml  # noqa: F401 - which pytester forgets after a test, and which can't be imported twice

from pytest_mlms.config import Config
from tests.support.project import PREDICTORS, Project, write_matrix

MANIFEST = "manifests/digits.yaml"
ACCURACY = f"{MANIFEST}::test_accuracy[onnxruntime-cpu]"
SINGLE_STREAM = [
    f"{MANIFEST}::test_performance[onnxruntime-cpu-b{size}-single_stream]" for size in (1, 8, 64)
]
OFFLINE = [f"{MANIFEST}::test_performance[onnxruntime-cpu-b{size}-offline]" for size in (1, 8, 64)]
ALL = [ACCURACY, *SINGLE_STREAM, *OFFLINE]


def collected_by(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def collected(project: Project, *arguments: str) -> list[str]:
    """Return the node ids that a run with these arguments collects."""
    return collected_by(project.run("--collect-only", "-q", *arguments))


def each_collected(project: Project, *runs: Sequence[str], plain: bool = False) -> list[list[str]]:
    """Return the node ids that each of several runs collects."""
    lists = [("--collect-only", "-q", *arguments) for arguments in runs]
    result = project.run_in_one_process(*lists, plain=plain)
    found: list[list[str]] = [[]]
    for line in result.outlines:
        if line.startswith("== "):
            found.append([])
        elif "::" in line:
            found[-1].append(line)
    return found[:-1]


def test_items_are_selected_by_keyword_mark_and_node_id(project: Project) -> None:
    assert each_collected(
        project,
        ["-k", "b8 and offline", "-m", "mlms"],
        ["-m", "not mlms"],
        [OFFLINE[1], f"{MANIFEST}::test_accuracy"],
    ) == [[OFFLINE[1]], [], [OFFLINE[1], ACCURACY]]


@pytest.mark.skipif(pytest.version_tuple < (8, 3), reason="pytest matches arguments from 8.3 on")
def test_marks_carry_the_case_where_pytest_can_match_it(project: Project) -> None:
    assert each_collected(
        project,
        ["-m", "mlms(kind='performance', batch_size=8)"],
        ["-m", "mlms(model='digits-cnn')"],
        ["-m", "mlms(model='other')"],
    ) == [[SINGLE_STREAM[1], OFFLINE[1]], ALL, []]


def test_a_setup_plan_names_the_fixtures_and_runs_nothing(project: Project) -> None:
    result = project.run("--setup-plan", "-k", "accuracy")
    result.stdout.fnmatch_lines(["*SETUP*F mlms_recorder*", "*SETUP*F mlms_outputs *"])
    assert not (project.path / "mlms-results").exists()


def test_verbose_lines_name_the_manifest_alone(project: Project) -> None:
    project.use_faulty()
    result = project.run("-v", "-k", "accuracy", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["manifests/digits.yaml::test_accuracy?faulty-cpu? PASSED*"])


def test_without_paths_only_the_folders_of_manifests_are_collected(project: Project) -> None:
    project.pytester.makepyfile(test_own="def test_own(): pass")
    (project.folder / "notes.txt").write_text("not a manifest")
    (project.folder / "test_beside.py").write_text("def test_beside(): pass")
    assert collected(project) == [*ALL, "manifests/test_beside.py::test_beside"]


def test_with_paths_only_those_are_collected(project: Project) -> None:
    project.pytester.makepyfile(test_own="def test_own(): pass")
    own = "test_own.py::test_own"
    runs = (["test_own.py"], ["test_own.py", MANIFEST])
    assert each_collected(project, *runs) == [[own], [own, *ALL]]


def test_a_manifest_or_its_node_id_on_the_command_line_is_enough(project: Project) -> None:
    shutil.copytree(project.folder, project.path / "more")
    runs = (
        [MANIFEST],
        [ACCURACY, OFFLINE[1]],
        [f"{project.manifest}::test_accuracy"],
        ["--mlms-manifests=more", MANIFEST],
    )
    expected = [ALL, [ACCURACY, OFFLINE[1]], [ACCURACY], ALL]
    assert each_collected(project, *runs, plain=True) == expected


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffmodels: [{}]\n",
        '"models": [{}]\n',
        "{name: x, models: [{}]}",
        "name: x\nframework: {name: ONNX, version: 1}\ninputs: []\n",
    ],
    ids=["byte order mark", "quotes", "flow", "original"],
)
def test_a_manifest_of_any_form_can_be_named(pytester: pytest.Pytester, text: str) -> None:
    pytester.path.joinpath("m.yaml").write_text(text)
    config = Config.from_pytest(pytester.parseconfig("m.yaml"))
    assert config.manifests == (pytester.path / "m.yaml",)


def test_manifests_in_a_folder_that_pytest_leaves_out_are_told(project: Project) -> None:
    (project.path / "manifests" / "build").mkdir()
    (project.path / "manifests" / "node_modules").mkdir()
    for folder in ("build", "node_modules"):
        shutil.copy(project.path / MANIFEST, project.path / "manifests" / folder / "m.yaml")
    result = project.run("--collect-only", "-q")
    assert collected_by(result) == ALL
    hidden = "build/m.yaml isn't collected: build is in norecursedirs; name the folder"
    result.stdout.fnmatch_lines([f"*{hidden}*"])
    assert "node_modules" not in result.stdout.str()


def test_yaml_of_other_plugins_is_left_to_them(project: Project) -> None:
    (project.path / "other.yaml").write_text("stages: [{models: x, framework: y}]")
    result = project.pytester.runpytest_subprocess("other.yaml", "--collect-only")
    result.stdout.no_fnmatch_line("*mlms*other.yaml*")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_run_of_manifests_does_not_need_the_conftest_files_of_other_tests(
    project: Project,
) -> None:
    (project.path / "tests").mkdir()
    other = project.path / "tests" / "conftest.py"
    other.write_text("import a_package_that_only_tests_need")
    project.pytester.makeini("[pytest]\ntestpaths = tests\n")
    option = "def pytest_addoption(parser): parser.addoption('--by-{name}')"
    (project.folder / "conftest.py").write_text(option.format(name="manifests"))
    project.pytester.makeconftest(option.format(name="root"))
    assert collected(project, "--by-root=1", "--by-manifests=2") == ALL


def test_the_ini_file_can_name_manifests_and_options(project: Project) -> None:
    project.pytester.makeini(
        """
        [pytest]
        mlms_manifests = manifests
        mlms_strict = true
        mlms_duration = 0.5
        python_functions = check_*
        """
    )
    result = project.pytester.runpytest_subprocess("--collect-only", "-q")
    assert collected_by(result) == ALL


WRONG_KEYS = {
    "mlms_duration = long": "mlms_duration in *0.ini: 'long' is not a number, 0 or more",
    "mlms_strict = maybe": "mlms_strict in *1.ini: *'maybe'; write true or false",
    "mlms_manifests = nowhere": "mlms_manifests in *2.ini: there is no *nowhere; *",
}
"""Line of an ini file -> the error."""


def test_a_wrong_ini_key_is_named_with_its_file(project: Project) -> None:
    runs = []
    for number, line in enumerate(WRONG_KEYS):
        (project.path / f"{number}.ini").write_text(f"[pytest]\n{line}\n")
        runs.append(["--collect-only", f"--config-file={number}.ini"])
    result = project.run_in_one_process(*runs, plain=True)
    assert result.outlines.count(f"== {int(pytest.ExitCode.USAGE_ERROR)}") == len(WRONG_KEYS)
    result.stderr.fnmatch_lines([f"ERROR: {message}" for message in WRONG_KEYS.values()])


def test_a_wrong_option_is_a_usage_error(project: Project) -> None:
    result = project.run("--mlms-manifests=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--mlms-manifests: there is no *nowhere; name a folder *"])


def test_a_single_file_and_several_folders_can_be_named(project: Project) -> None:
    shutil.copytree(project.folder, project.path / "more")
    found = collected(project, "--mlms-manifests=more/digits.yaml", "-k", "accuracy")
    assert found == [ACCURACY, ACCURACY.replace("manifests", "more")]


def test_manifests_outside_of_the_root_folder_run(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.use_faulty()
    outside = tmp_path_factory.mktemp("outside") / "m"
    shutil.copytree(project.folder, outside)
    project.run(f"--mlms-manifests={outside}", "-k", "accuracy").assert_outcomes(passed=2)
    relative = os.path.relpath(outside, project.path)
    assert len(collected(project, f"--mlms-manifests={relative}")) == 4


def test_manifests_outside_of_the_root_folder_have_ids_of_their_own(project: Project) -> None:
    (project.path / "root").mkdir()
    shutil.copytree(project.folder, project.path / "other")
    both = ["--mlms-manifests=manifests/digits.yaml", "--mlms-manifests=other", "-k", "accuracy"]
    result = project.pytester.runpytest_subprocess("--collect-only", "-q", "--rootdir=root", *both)
    result.stdout.fnmatch_lines(
        [
            "../manifests/digits.yaml::test_accuracy?onnxruntime-cpu?",
            "../other/digits.yaml::test_accuracy?onnxruntime-cpu?",
        ]
    )


def test_all_errors_of_a_manifest_are_one_collection_error(project: Project) -> None:
    project.edit("float32", "fp32")
    project.edit("5 ms", "5")
    result = project.run("--collect-only")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting manifests/digits.yaml*",
            "manifests/digits.yaml:16: inputs[[]0[]].element_type: 'fp32' is not known; *",
            "manifests/digits.yaml:44: thresholds.latency_p90.max: 5 has no unit; *",
        ]
    )
    assert "Traceback" not in result.stdout.str()


def test_marks_of_the_manifest_reach_the_items(project: Project) -> None:
    project.use_faulty(at="predict", fault="memory")
    marks = "marks: {xfail: {'faulty-cpu': not today}, skip: {'*-b8-*': too slow}}"
    project.manifest.write_text(f"{project.manifest.read_text()}\n{marks}\n")
    result = project.run("-rsx")
    result.assert_outcomes(xfailed=1, skipped=1)
    outcomes = {item["verdict"]: item["outcome"] for item in project.items()}
    assert outcomes == {"XFAILED": "xfailed", "SKIPPED": "skipped"}
    result.stdout.fnmatch_lines(
        ["SKIPPED*too slow", "XFAIL manifests/digits.yaml::test_accuracy?faulty-cpu? - not today"]
    )
    result.stdout.no_fnmatch_line("*nothing was measured*")


def test_a_mark_that_marks_nothing_is_warned_of(project: Project) -> None:
    stacks = "old: {framework: onnxruntime, interpreter: current}\n"
    (project.folder / "stacks.yaml").write_text(stacks)
    marked = ["old", "onnxruntime", "old-cpu-b1", "*-b8-offline", "*-vs-*", "onnxruntime<1.18-*"]
    marked += ["*-b46-*", "onxruntime"]
    marks = ", ".join(f"'{pattern}': slow" for pattern in marked)
    project.manifest.write_text(f"{project.manifest.read_text()}\nmarks: {{skip: {{{marks}}}}}\n")
    result = project.run("--collect-only", "-k", "accuracy")
    text = result.stdout.str()
    idle = [pattern for pattern in marked if f"skip {pattern!r} marks nothing" in text]
    assert idle == ["*-b46-*", "onxruntime"]
    assert "a pattern of ids such as old-cpu-b64-offline" in text


def test_accuracy_passes_where_warnings_are_errors(project: Project) -> None:
    project.set_thresholds("  top1: {min: 0.9}")
    project.run("-W", "error", "-k", "accuracy").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        (
            "marks: {skip: {'*-b46-*': slow}}",
            [],
            "digits.yaml:*: skip '*-b46-[*]' marks nothing; *",
        ),
        ("", [], "digits.yaml:*: no limit judges what * measures*"),
        (
            "",
            ["--mlms-aa", "--mlms-gate=query_latency=3%"],
            "--mlms-gate=query_latency=3% judges *",
        ),
    ],
    ids=["mark", "limit", "gate"],
)
def test_a_warning_of_collection_is_an_error_of_a_line_where_warnings_are_errors(
    project: Project, text: str, options: list[str], error: str
) -> None:
    """It was a traceback."""
    project.set_thresholds("  top1: {min: 0.9}" if text else "")
    project.manifest.write_text(f"{project.manifest.read_text()}\n{text}\n")
    kind = "pytest_mlms.warning_types.MlmsWarning"
    result = project.run("-W", f"error::{kind}", "--collect-only", *options)
    lines = result.outlines + result.errlines
    assert result.ret in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR)
    assert any(fnmatch(line, f"*{error}") for line in lines), lines
    assert not [line for line in lines if "Traceback" in line or "warned.py" in line]


def test_an_error_that_is_not_of_the_model_is_no_expected_failure(project: Project) -> None:
    project.use_faulty()
    (project.folder / "digits_cnn.onnx").write_text("{ }")
    marks = "marks: {xfail: {'faulty-cpu': not today}}"
    project.manifest.write_text(f"{project.manifest.read_text()}\n{marks}\n")
    result = project.run("-k", "accuracy")
    result.assert_outcomes(errors=1)
    (item,) = project.items()
    assert item["verdict"] == "ERROR"
    assert "sha256" in item["message"]


def test_a_run_whose_only_item_is_skipped_says_that_nothing_was_measured(
    project: Project,
) -> None:
    project.use_faulty()
    marks = "marks: {skip: {'*-b8-*': too slow}}"
    project.manifest.write_text(f"{project.manifest.read_text()}\n{marks}\n")
    result = project.run("--mlms-strict", "-k", "b8")
    result.stdout.fnmatch_lines(
        ["mlms: nothing was measured: the only item was skipped, -rs says why"]
    )


def test_a_manifest_without_a_dataset_has_no_accuracy_item(project: Project) -> None:
    text = project.manifest.read_text()
    before, _, rest = text.partition("dataset:")
    _, _, after = rest.partition("evaluate:")
    text = f"{before}evaluate:{after}"
    project.manifest.write_text(text.replace("  top1: {min: 0.95}\n  top5: {min: 99 %}\n", ""))
    assert collected(project) == [*SINGLE_STREAM, *OFFLINE]


OFFLINE_CONFTEST = """
import socket, sys

def refuse(*_):
    raise AssertionError("the network was used")

socket.socket.connect = refuse

def pytest_collection_finish(session):
    assert len(session.items) == 7
    assert "onnxruntime" not in sys.modules
    assert "mlms_predictors.onnxruntime" not in sys.modules
"""


def test_collection_imports_no_framework_and_opens_no_connection(project: Project) -> None:
    project.pytester.makeconftest(OFFLINE_CONFTEST)
    project.edit("graph: digits_cnn.onnx", "graph: https://127.0.0.1:9/digits_cnn.onnx")
    assert project.run("--collect-only").ret == 0


COUNTING_CONFTEST = """
import functools
import importlib

from _pytest.fixtures import FixtureManager

counts = {}

def count(owner, name):
    function = getattr(owner, name)
    @functools.wraps(function)
    def counted(*arguments, **named):
        counts[name] = counts.get(name, 0) + 1
        return function(*arguments, **named)
    setattr(owner, name, counted)

count(FixtureManager, "getfixtureinfo")
count(importlib.import_module("pytest_mlms.author.loading"), "read")
count(importlib.import_module("pytest_mlms.items.collect"), "select_cases")

def pytest_collection_finish(session):
    assert len(session.items) == 7
    print("counts:", sorted(counts.items()))
"""


def test_a_manifest_is_read_once_and_its_fixtures_are_found_once_a_kind(project: Project) -> None:
    project.pytester.makeconftest(COUNTING_CONFTEST)
    result = project.run("--collect-only", "-q", "-s")
    counts = [("getfixtureinfo", 2), ("read", 1), ("select_cases", 3)]
    result.stdout.fnmatch_lines_random([f"counts: *{str(counts)[1:-1]}*"])


PRINT_IMPORTED = """
import sys

def pytest_unconfigure():
    print("imported:", sorted({unwanted} & set(sys.modules)))
"""


@pytest.mark.usefixtures("started")
def test_a_manifest_becomes_items_with_readable_ids_without_imports_that_compute(
    project: Project,
) -> None:
    project.pytester.makeconftest(PRINT_IMPORTED.format(unwanted={"numpy", "scipy"}))
    result = project.run("--collect-only", "-q", "-s")
    assert collected_by(result) == ALL
    result.stdout.fnmatch_lines(["imported: []"])


PRINT_GARBAGE = """
import gc

def pytest_collection_modifyitems():
    print("collecting:", gc.isenabled(), gc.get_freeze_count())

def pytest_unconfigure():
    print("collected:", gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("manifests", ["collecting: False 0", "collected: True True"]),
        ("own", ["collecting: True 0", "collected: True False"]),
    ],
)
def test_no_garbage_is_looked_for_while_manifests_are_collected(
    project: Project, path: str, lines: list[str]
) -> None:
    project.pytester.makeconftest(PRINT_GARBAGE)
    project.pytester.mkpydir("own")
    options = [f"--mlms-manifests={path}"] if path == "manifests" else [path]
    result = project.pytester.runpytest_subprocess("--collect-only", "-q", "-s", *options)
    result.stdout.fnmatch_lines(lines)


@pytest.mark.usefixtures("started")
def test_what_estimates_nothing_imports_no_functions_of_statistics(project: Project) -> None:
    project.use_faulty(at="load", fault="exit")
    project.pytester.makeconftest(PRINT_IMPORTED.format(unwanted={"scipy.special"}))
    result = project.run("-s", "-k", "accuracy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["imported: []"])


def test_a_run_over_local_files_imports_nothing_that_downloads(project: Project) -> None:
    project.use_faulty()
    unwanted = {"chardet", "pooch", "requests"}
    project.pytester.makeconftest(PRINT_IMPORTED.format(unwanted=unwanted))
    result = project.run("-s")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["imported: []"])


UNUSED = (
    "--mlms-stack tensorflow==2.15: no manifest of this run has a model for tensorflow; "
    "name a stack for onnxruntime, or add a model"
)


def test_a_stack_that_no_manifest_has_a_model_for_is_refused(project: Project) -> None:
    result = project.run("--mlms-stack=tensorflow==2.15")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {UNUSED}" in result.errlines


def test_a_stack_without_a_model_fails_a_run_over_workers(project: Project) -> None:
    result = project.run("--mlms-stack=tensorflow==2.15", "-n2")
    assert result.ret not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert result.outlines.count(UNUSED) == 1


def test_a_baseline_that_no_manifest_has_a_model_for_is_refused(project: Project) -> None:
    result = project.run("--mlms-against=tensorflow==2.15")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --mlms-against tensorflow==2.15: no manifest of *"])


def test_one_stack_among_others_without_a_model_is_a_warning(project: Project) -> None:
    result = project.run("--collect-only", "--mlms-stack=tensorflow==2.15", "--mlms-stack=here")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*MlmsWarning: {UNUSED}"])


def test_without_options_the_plugin_prints_and_writes_nothing(project: Project) -> None:
    project.pytester.makepyfile("def test_own(): pass")
    options = ("-p", "no:cacheprovider")
    without = project.pytester.runpytest_subprocess("-p", "no:mlms", *options)
    with_plugin = project.pytester.runpytest_subprocess(*options)
    with_plugin.assert_outcomes(passed=1)
    assert stable_lines(with_plugin) == stable_lines(without)
    assert not (project.path / "mlms-results").exists()


def stable_lines(result: pytest.RunResult) -> list[str]:
    """Return the lines that are the same in each run."""
    changing = ("plugins:", "===", "rootdir")
    return [line for line in result.outlines if not line.startswith(changing)]


def test_the_plugin_can_be_switched_off(project: Project) -> None:
    project.pytester.makepyfile("def test_own(): pass")
    project.pytester.runpytest_subprocess("-p", "no:mlms").assert_outcomes(passed=1)
    result = project.pytester.runpytest_subprocess("-p", "no:mlms", "--mlms-manifests=manifests")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_levels_of_the_ini_file_do_not_stand_in_the_way_of_upgrades(project: Project) -> None:
    project.pytester.makeini("[pytest]\nmlms_trace = layer\n")
    ids = collected(project, "--mlms-aa")
    assert ids
    assert all("::test_upgrade[" in nodeid for nodeid in ids)


OWN_TESTS = """
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


def test_users_own_tests_can_use_the_fixtures(project: Project) -> None:
    project.use_faulty(answer=2)
    (project.path / "own").mkdir()
    (project.path / "own" / "test_own.py").write_text(OWN_TESTS)
    result = project.run("own")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["mlms_case: mark the test with @pytest.mark.mlms(manifest='PATH')*", "*assert 8 == 7*"]
    )
    assert {item["verdict"] for item in project.items()} == {"PASSED", "FAILED"}
    assert {item["manifest"]["path"] for item in project.items()} == {MANIFEST}


def test_a_mark_that_names_no_manifest_is_a_collection_error(project: Project) -> None:
    project.pytester.makepyfile(
        """
        import pytest

        @pytest.mark.mlms(manifest='none.yaml')
        def test_own(mlms_case):
            pass
        """
    )
    result = project.pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(
        ["test_a_mark*.py:3: mark mlms: there is no *none.yaml; name a manifest, from the test's *"]
    )


RMSE = """
import pytest

@pytest.mark.mlms({arguments})
def test_rmse(mlms_case):
    assert mlms_case.id == "matrix-cpu"
"""


def run_own(project: Project, arguments: str, *options: str) -> pytest.RunResult:
    """Run a user's test of a regression, whose mark has these arguments."""
    write_matrix(project.path)
    project.pytester.makepyfile(test_own=RMSE.format(arguments=arguments))
    return project.run("test_own.py", *options)


def test_a_mark_on_a_manifest_without_classification_gives_a_case_for_each_stack(
    project: Project,
) -> None:
    run_own(project, "manifest='m.yaml'").assert_outcomes(passed=1)
    assert [item["verdict"] for item in project.items()] == ["PASSED"]


def test_a_mark_whose_kind_has_no_case_skips_the_test_and_says_so(project: Project) -> None:
    result = run_own(project, "manifest='m.yaml', kind='upgrade'", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*m.yaml: no case of kind upgrade in this run"])


def test_a_misspelt_kind_of_a_mark_is_a_collection_error(project: Project) -> None:
    result = run_own(project, "manifest='m.yaml', kind='performnce'")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = "test_own.py:3: mark mlms: unknown kind 'performnce'; did you mean 'performance'?"
    result.stdout.fnmatch_lines([f"*{text}"])


def test_a_framework_that_is_known_to_be_missing_costs_no_reference(project: Project) -> None:
    (project.path / "more").mkdir()
    (project.path / "more" / "absent.py").write_text("import a_module_that_is_absent")
    project.edit("framework: onnxruntime >=1.17", "framework: absent")
    text = project.manifest.read_text()
    _, _, model = text.partition("models:\n")
    model, _, _ = model.partition("\ninputs:")
    other = model.replace("absent", "onnxruntime")
    project.edit("\ninputs:", f"\n{other}\ninputs:")
    project.set_thresholds("  agreement: {reference: onnxruntime, rtol: 1e-4, atol: 1e-5}")
    selected = ("-k", "absent and (accuracy or agreement)", "-rs")
    result = project.run("--mlms-predictors=more", "--mlms-stack=here", *selected)
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*absent can't be imported in stack here*"])
    assert not (project.results / "agents").exists()


def test_a_predictor_comes_from_an_installed_package_too(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = project.path / "site"
    package = site / "their_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    code = (PREDICTORS / "faulty.py").read_text()
    (package / "theirs.py").write_text(code.replace('"faulty": "1.2.3"', '"theirs": "4.0"'))
    metadata = site / "their_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: their-package\nVersion: 1.0\n")
    entry_point = "[mlms_predictors]\ntheirs = their_package.theirs\n"
    (metadata / "entry_points.txt").write_text(entry_point)
    monkeypatch.setenv("PYTHONPATH", str(site))
    project.use_faulty()
    project.edit("framework: faulty", "framework: theirs >=4")
    project.run("-k", "accuracy").assert_outcomes(passed=1)
    assert project.items()[0]["versions"]["theirs"] == "4.0"
