"""How the agents of stacks are started, and what leaks into them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import AgentError, Unavailable
from pytest_mlms.core.records import Launch, Library, Stack
from pytest_mlms.measure.agent.process import start_agent
from pytest_mlms.provide.host.locks import own_cores
from pytest_mlms.provide.stacks.launch import base_interpreter, clean_environment, prepare
from tests.support.project import Project, SharedRuns, launch
from tests.support.wheels import share_seeds

HANG_GUARD = 300.0  # seconds
HAS_AFFINITY = hasattr(os, "sched_setaffinity")

SPY = """
import os, site, sys

def versions():
    facts = dict(os.environ)
    facts.update(spy="1", path=":".join(sys.path), user=str(site.ENABLE_USER_SITE))
    return facts

def devices():
    return ["cpu"]

def load(request):
    raise NotImplementedError

def predict(loaded, arrays):
    raise NotImplementedError
"""


@pytest.fixture
def spy(tmp_path: Path) -> Path:
    """A predictor that tells its environment as its versions."""
    path = tmp_path / "spy.py"
    path.write_text(SPY)
    return path


def hello(launch: Launch, predictor: Path) -> dict[str, Any]:
    """Return what an agent says of itself."""
    agent = start_agent(launch, predictor, predictor.parent / "log", HANG_GUARD)
    try:
        return agent.request("hello").facts
    finally:
        agent.close()


@pytest.mark.parametrize(
    "name",
    [
        *("PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV"),
        *("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_TEAMS_THREAD_LIMIT", "OMP_NUM_TEAMS"),
        *("OMP_DYNAMIC", "MKL_DYNAMIC", "MKL_DOMAIN_NUM_THREADS", "KMP_HW_SUBSET", "NPROC"),
        *("GOTO_NUM_THREADS", "OPENBLAS_DEFAULT_NUM_THREADS", "BLIS_JC_NT", "TBB_NUM_THREADS"),
        *("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_GPU_THREAD_COUNT"),
        *("OPENCV_FOR_THREADS_NUM", "MXNET_CPU_WORKER_NTHREADS", "MXNET_OMP_MAX_THREADS"),
        *("NUMEXPR_MAX_THREADS", "VECLIB_MAXIMUM_THREADS"),
    ],
)
def test_the_environment_of_an_agent_is_without_leaks(name: str) -> None:
    base = {name: "leak", "LANG": "kept"}
    kept = {"LANG": "kept", "PYTHONNOUSERSITE": "1"}
    assert clean_environment(base, {}) == kept
    assert clean_environment(base, {}, ["*"]) == kept


@pytest.mark.parametrize("name", ["OMP_PROC_BIND", "KMP_AFFINITY", "TF_GPU_THREAD_MODE"])
def test_where_and_how_threads_run_is_passed_on(name: str) -> None:
    assert clean_environment({name: "x"}, {})[name] == "x"


def test_the_variables_of_a_stack_replace_those_of_the_user() -> None:
    environment = clean_environment({"TZ": "user's"}, {"TZ": "own", "OMP_NUM_THREADS": "2"})
    assert environment["TZ"] == "own"
    assert environment["OMP_NUM_THREADS"] == "2"


def test_nothing_of_the_user_s_python_reaches_an_agent(
    spy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/leak")
    monkeypatch.setenv("PYTHONINSPECT", "1")
    monkeypatch.setenv("TZ", "kept")
    versions = hello(launch(), spy)["versions"]
    assert not {"PYTHONPATH", "PYTHONINSPECT"} & set(versions)
    assert versions["TZ"] == "kept"
    assert "/leak" not in versions["path"]
    assert versions["user"] == "False"


SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "GITHUB_TOKEN": "s3cret",
    "HF_TOKEN": "s3cret",
    "NVIDIA_API_KEY": "s3cret",
    "TF_VAR_db": "s3cret",
    "SSH_AUTH_SOCK": "/s3cret",
    "https_proxy": "http://joe:s3cret@proxy",
    "PIP_INDEX_URL": "https://joe:s3cret@index",
    "DATABASE_URL": "postgres://joe:s3cret@db",
}


def test_no_secret_of_the_user_reaches_an_agent(spy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    assert "s3cret" not in str(hello(launch(), spy)["versions"])


def test_a_stack_names_further_variables_for_its_agents(
    spy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    made = launch(env_passthrough=("HF_TOKEN", "DATABASE_*"))
    versions = hello(made, spy)["versions"]
    assert {name for name in SECRETS if name in versions} == {"HF_TOKEN", "DATABASE_URL"}


def test_threads_are_in_the_environment_before_the_framework_starts() -> None:
    environment = launch(threads=2, env=(("MKL_NUM_THREADS", "5"),)).env
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["OPENBLAS_NUM_THREADS"] == "2"
    assert environment["MKL_NUM_THREADS"] == "5"


def test_without_threads_there_is_no_variable_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    assert "OMP_NUM_THREADS" not in launch().env


def test_the_folder_of_a_stack_stands_in_its_variables() -> None:
    environment = launch(env=(("DATA", "{stack}/data"),)).env
    assert environment["DATA"] == f"{sys.prefix}/data"


def test_the_base_of_a_stack_is_this_interpreter_unless_it_names_another() -> None:
    this = Path(sys.executable)
    assert base_interpreter(Stack("here", "any", interpreter="current")).path == this
    assert base_interpreter(Stack("made", "any", requirements=("six",))).path == this
    with pytest.raises(Unavailable, match=r"no Python 3\.99"):
        base_interpreter(Stack("made", "any", python="3.99", requirements=("six",)))


@pytest.mark.skipif(not HAS_AFFINITY, reason="this system holds no process to cores")
def test_an_agent_is_held_to_its_cores_and_says_so(spy: Path) -> None:
    mine = own_cores()
    assert hello(launch(), spy)["cores"] == mine
    assert hello(launch(cores=(mine[-1],)), spy)["cores"] == [mine[-1]]


@pytest.mark.skipif(not HAS_AFFINITY, reason="this system holds no process to cores")
def test_a_core_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="stack test is for cores 0, 1000; there are"):
        launch(cores=(0, 1000))


@pytest.mark.skipif(not HAS_AFFINITY, reason="this system holds no process to cores")
def test_an_agent_with_a_core_that_is_not_there_fails(spy: Path) -> None:
    wrong = replace(launch(), cores=(0, 1000))
    agent = start_agent(wrong, spy, spy.parent / "log", HANG_GUARD)
    with pytest.raises(AgentError, match="asked for cores|Invalid argument"):
        agent.request("hello")


def test_a_system_library_is_found_under_the_name_that_is_wanted(tmp_path: Path) -> None:
    if not shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin"):
        pytest.skip("this system has no ldconfig")
    library = Library("libmine.so.77", "libc.so.6", "libc6")
    stack = Stack("lent", "any", interpreter=sys.executable, libraries=(library,))
    made = prepare(stack, tmp_path)
    code = "import ctypes; print(ctypes.CDLL('libmine.so.77').getpid() > 0)"
    command = [*made.command, "-c", code]
    environment = dict(made.env)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_a_system_library_that_is_not_there_is_unavailable_with_its_package(
    tmp_path: Path,
) -> None:
    library = Library("libmine.so.77", "libnothing.so.9", "libnothing9")
    stack = Stack("mpi", "any", interpreter="current", libraries=(library,))
    message = r"stack mpi needs libnothing\.so\.9; apt-get install libnothing9"
    with pytest.raises(Unavailable, match=message):
        prepare(stack, tmp_path)


def declare(project: Project, text: str, name: str = "stacks.yaml") -> None:
    (project.path / name).write_text(text)


def collected(project: Project, *options: str) -> list[str]:
    """Return the ids of the items of accuracy that options collect."""
    result = project.run("--collect-only", "-q", "-k", "accuracy", *options)
    return ids(result)


def ids(result: pytest.RunResult) -> list[str]:
    return [line.partition("::")[2] for line in result.outlines if "::" in line]


def test_threads_of_the_manifest_reach_the_framework_and_the_results(project: Project) -> None:
    project.edit("seed: 7", "seed: 7\n  threads: 1")
    project.run("-k", "accuracy").assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["threads_used"] == 1
    declared = {"interpreter": "current"}
    assert item["stack"] == {"name": "here", "threads": 1, "cores": [], "declared": declared}
    assert item["launch"]["lock"] == []
    assert f"onnxruntime=={item['versions']['onnxruntime']}" in item["launch"]["packages"]


def test_other_threads_than_those_asked_for_are_an_error(project: Project) -> None:
    project.use_faulty(threads=4)
    project.edit("seed: 7", "seed: 7\n  threads: 2")
    result = project.run("-k", "accuracy")
    result.assert_outcomes(errors=1)
    message = "*asked for 2 threads, faulty runs with 4 threads; ask for what it can do*"
    result.stdout.fnmatch_lines([message])


def test_options_of_the_manifest_reach_the_predictor(project: Project) -> None:
    options = {"mode": "compile", "level": 3, "fast": True, "rate": 0.5}
    project.use_faulty(options=options)
    written = "{mode: compile, level: 3, fast: true, rate: 0.5}"
    project.edit("framework: faulty", f"framework: faulty\n    options: {written}")
    project.run("-k", "accuracy").assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["options"] == options


TWO = """
one: {framework: onnxruntime, requirements: [onnxruntime==1.30.0], threads: 1}
two: {framework: onnxruntime, python: "3.99", requirements: [onnxruntime==1.30.0]}
other: {framework: pytorch, requirements: [torch]}
"""


def test_chosen_stacks_are_in_the_ids(project: Project) -> None:
    declare(project, TWO)
    ad_hoc = "onnxruntime==1.31.1,numpy>=2,<3"
    chosen = ["--mlms-stack=two", f"--mlms-stack={ad_hoc}", "--mlms-stack=here"]
    assert collected(project, *chosen) == [
        "test_accuracy[two-cpu]",
        "test_accuracy[onnxruntime==1.31.1,numpy<3,>=2-cpu]",
        "test_accuracy[onnxruntime-cpu]",
    ]


def test_nothing_is_installed_for_a_collection(project: Project) -> None:
    declare(project, TWO)
    cache = project.path / "cache"
    found = collected(project, "--mlms-stack=all", f"--mlms-cache={cache}")
    assert found == ["test_accuracy[one-cpu]", "test_accuracy[two-cpu]"]
    assert not cache.exists()


def test_stacks_are_found_beside_the_manifests_in_the_rootdir_and_in_pyproject(
    project: Project,
) -> None:
    (project.folder / "stacks.yaml").write_text("beside: {interpreter: current}")
    declare(project, "root: {framework: onnxruntime, interpreter: current}", "stacks.yml")
    declare(project, "[tool.mlms.stacks.toml]\ninterpreter = 'current'\n", "pyproject.toml")
    assert collected(project, "--mlms-stack=all") == [
        "test_accuracy[root-cpu]",
        "test_accuracy[toml-onnxruntime-cpu]",
        "test_accuracy[beside-onnxruntime-cpu]",
    ]


def test_an_ini_file_may_choose_stacks(project: Project) -> None:
    declare(project, TWO)
    project.pytester.makeini("[pytest]\nmlms_stack =\n    one\n    two\n")
    assert collected(project) == ["test_accuracy[one-cpu]", "test_accuracy[two-cpu]"]


def test_a_file_of_stacks_is_no_manifest(project: Project) -> None:
    (project.folder / "stacks.yaml").write_text("one: {interpreter: current}")
    assert collected(project) == ["test_accuracy[onnxruntime-cpu]"]


def check_usage_error(result: pytest.RunResult, message: str) -> None:
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert "Traceback" not in result.stderr.str()


WRONG_OPTIONS = [
    ["--mlms-stack=tow"],
    ["--mlms-stack=one", "--mlms-against=towards"],
    ["--mlms-stack=onnxruntime=2.1"],
    ["--mlms-stack=torch=2.1"],
    ["--mlms-stack=onnxruntime=2.1", "--mlms-against=onnxruntime=2.0"],
    ["--mlms-stack=torch=2.1", "--mlms-against=torch=2.0"],
]


def run_wrong_options(project: Project) -> pytest.RunResult:
    declare(project, TWO)
    return project.run_in_one_process(*WRONG_OPTIONS)


@pytest.fixture
def refused(project: Project, shared_runs: SharedRuns) -> pytest.RunResult:
    """The output of runs with each of WRONG_OPTIONS."""
    result = shared_runs.of(run_wrong_options, project).result
    status = int(pytest.ExitCode.USAGE_ERROR)
    assert result.outlines.count(f"== {status}") == len(WRONG_OPTIONS)
    return result


def test_an_unknown_stack_is_a_usage_error(refused: pytest.RunResult) -> None:
    message = "--mlms-stack: 'tow' is neither a stack nor a requirement*did you mean 'two'?*"
    check_usage_error(refused, message)


def test_an_error_in_a_file_of_stacks_is_a_usage_error(project: Project) -> None:
    declare(project, "one:\n  interpreter: current\n  thread: 1\n")
    result = project.run("--mlms-stack=one")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    check_usage_error(result, "stacks.yaml:3: one: unknown key 'thread'; did you mean 'threads'?")


def test_ids_are_the_same_on_every_worker(project: Project) -> None:
    project.use_faulty()
    a = "a: {interpreter: current}"
    b = "b: {framework: faulty, interpreter: current, threads: 1}"
    declare(project, f"{a}\n{b}\n")
    result = project.run("--mlms-stack=all", "-n", "2", "-k", "accuracy", "-v")
    result.assert_outcomes(passed=2)
    threads = {item["case"]: item["stack"]["threads"] for item in project.items()}
    assert threads == {"a-faulty-cpu": None, "b-cpu": 1}


def test_a_python_that_is_not_here_is_a_skip_with_what_to_install(project: Project) -> None:
    declare(project, TWO)
    result = project.run("--mlms-stack=two", "-k", "accuracy", "-rs")
    result.assert_outcomes(skipped=1)
    reason = "*stack two: no Python 3.99 on PATH,*install it: 'uv python install 3.99'*"
    result.stdout.fnmatch_lines([reason])


def test_a_python_that_is_not_here_is_an_error_where_that_is_asked_for(project: Project) -> None:
    declare(project, TWO)
    result = project.run("--mlms-stack=two", "-k", "accuracy", "--mlms-strict")
    result.assert_outcomes(errors=1)


def test_a_program_that_is_no_interpreter_is_an_error(project: Project) -> None:
    project.use_faulty()
    declare(project, "none: {interpreter: /bin/echo}\n")
    result = project.run("--mlms-stack=none", "-k", "accuracy")
    result.assert_outcomes(errors=1)
    problem = "asked for its version, it ended with status 0 and said*"
    result.stdout.fnmatch_lines([f"*/bin/echo is not a Python interpreter: {problem}"])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize("kind", ["accuracy", "performance and b8 and single"])
def test_an_interpreter_whose_path_is_misspelt_is_an_error_at_its_line(
    project: Project, kind: str
) -> None:
    project.use_faulty()
    declare(project, "gone: {interpreter: ./nowhere/python}\n")
    result = project.run("--mlms-stack=gone", "-k", kind)
    assert result.parseoutcomes().keys() & {"errors", "skipped", "passed"} == {"errors"}
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    problem = "stack gone: the interpreter */nowhere/python isn't there; correct its path"
    result.stdout.fnmatch_lines([f"*stacks.yaml:1: {problem}"])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize("kind", ["accuracy", "performance and b8 and single"])
def test_a_path_that_is_on_other_hosts_is_no_error_where_the_manifest_is_for_those(
    project: Project, kind: str
) -> None:
    project.use_faulty()
    declare(project, "gone: {interpreter: ./nowhere/python}\n")
    with project.manifest.open("a") as file:
        file.write("\nhardware: {memory: '>= 900000 GiB'}\n")
    result = project.run("--mlms-stack=gone", "-k", kind, "-rs")
    assert result.parseoutcomes().keys() & {"errors", "skipped", "passed"} == {"skipped"}
    result.stdout.fnmatch_lines(["SKIPPED*, not >= 900000 GiB"])


def test_a_path_of_the_command_line_that_leads_nowhere_is_an_error(project: Project) -> None:
    project.use_faulty()
    result = project.run("--mlms-stack=./venvv", "-k", "accuracy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*stack ./venvv: the interpreter */venvv isn't there; correct *"])


def test_an_existing_interpreter_runs_the_agent(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.use_faulty()
    interpreter = tmp_path_factory.mktemp("bin") / "python"
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    project.run(f"--mlms-stack={interpreter}", "-k", "accuracy").assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["launch"]["command"][0] == str(interpreter)
    assert any(line.startswith("pytest-mlms==") for line in item["launch"]["packages"])
    assert item["case"] == f"{interpreter}-faulty-cpu"


@pytest.mark.slow
def test_a_failed_installation_is_an_error_of_each_item_and_leaves_nothing(
    project: Project, seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    share_seeds(project.path / "cache", seeds)
    project.use_faulty()
    declare(project, "odd: {framework: faulty, requirements: [no-such-distribution]}\n")
    result = project.run("--mlms-stack=odd", "--mlms-cache=cache", "-k", "accuracy or performance")
    result.assert_outcomes(errors=2)
    report = [
        "*stack odd can't be made with Python*",
        "  installing ended with status 1:",
        "*No matching distribution found for no-such-distribution*",
    ]
    result.stdout.fnmatch_lines(report)
    assert "Traceback" not in result.stdout.str()
    left = [path.name for path in (project.path / "cache" / "stacks").iterdir() if path.is_dir()]
    assert set(left) <= {"seeds"}


@pytest.mark.slow
def test_a_real_framework_is_installed_used_recorded_and_found_again(project: Project) -> None:
    options = ["--mlms-stack=onnxruntime==1.30.0", "--mlms-cache=cache", "-k", "accuracy"]
    project.run(*options).assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["versions"]["onnxruntime"] == "1.30.0"
    assert "onnxruntime==1.30.0" in item["launch"]["lock"]
    assert "packages" not in item["launch"], "the lock has them"
    assert item["executable"].startswith(str(project.path / "cache" / "stacks"))
    project.run(*options, "--mlms-stack=here", "-n", "2").assert_outcomes(passed=2)
    assert len({item["executable"] for item in project.items()}) == 2


def test_a_stack_is_gated_against_another_or_itself(project: Project) -> None:
    declare(project, TWO)
    options = ["--collect-only", "-q", "-k", "b8", "--mlms-stack=one", "--mlms-stack=two"]
    another = project.run(*options, "--mlms-against=onnxruntime==1.29.0")
    assert ids(another) == [
        "test_upgrade[one-vs-onnxruntime==1.29.0-cpu-b8]",
        "test_upgrade[two-vs-onnxruntime==1.29.0-cpu-b8]",
    ]
    itself = project.run(*options, "--mlms-aa")
    assert ids(itself) == ["test_upgrade[one-aa-cpu-b8]", "test_upgrade[two-aa-cpu-b8]"]


def test_an_unknown_baseline_is_a_usage_error(refused: pytest.RunResult) -> None:
    check_usage_error(refused, "--mlms-against: 'towards' is neither a stack nor a requirement*")


@pytest.mark.parametrize("name", ["onnxruntime", "torch"])
def test_a_version_with_one_equals_sign_is_not_taken_for_a_label(
    refused: pytest.RunResult, name: str
) -> None:
    message = f"{name}=2.1 would be a label of hosts; for a version write {name}==2.1"
    check_usage_error(refused, message)


@pytest.mark.parametrize("name", ["onnxruntime", "torch"])
def test_a_label_without_a_baseline_is_a_usage_error(refused: pytest.RunResult, name: str) -> None:
    advice = f"(a version has two signs: {name}==2.1)"
    check_usage_error(refused, f"{name}=2.1 is a label of hosts: *{advice}")
