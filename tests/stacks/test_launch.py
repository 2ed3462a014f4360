"""Stacks: how their agents are started, and what leaks into them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.agent.process import start_agent
from pytest_mlms.errors import AgentError, Unavailable
from pytest_mlms.records import Launch, Library, Stack
from pytest_mlms.stacks.launch import prepare
from tests.support.project import Project, launch

SPY = """
import os, site, sys
from mlms_predictors import Loaded, Tensor

def versions():
    return {"spy": "1", **{name: value for name, value in os.environ.items()}, "path": ":".join(sys.path), "user": str(site.ENABLE_USER_SITE)}

def devices():
    return ["cpu"]
"""


@pytest.fixture
def spy(tmp_path: Path) -> Path:
    (tmp_path / "spy.py").write_text(SPY)
    return tmp_path / "spy.py"


def greet(launch: Launch, predictor: Path) -> dict[str, Any]:
    agent = start_agent(launch, predictor, predictor.parent / "log", 300)
    try:
        return agent.request("hello").facts
    finally:
        agent.close()


def test_nothing_of_the_users_python_leaks_into_an_agent(
    spy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaks = {
        "PYTHONPATH": "/leak",
        "PYTHONSTARTUP": "/leak.py",
        "PYTHONINSPECT": "1",
        "OMP_NUM_THREADS": "77",
    }
    for name, value in {**leaks, "HARMLESS": "kept"}.items():
        monkeypatch.setenv(name, value)
    seen = greet(launch(), spy)["versions"]
    assert not set(leaks) & set(seen)
    assert seen["HARMLESS"] == "kept"
    assert "/leak" not in seen["path"]
    assert seen["user"] == "False"


def test_threads_asked_for_are_in_the_environment_before_the_framework_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    monkeypatch.setenv("OMP_THREAD_LIMIT", "3")
    assert not {"OMP_NUM_THREADS", "OMP_THREAD_LIMIT"} & set(launch().env)
    made = launch(threads=2, env=(("MKL_NUM_THREADS", "5"),)).env
    assert (made["OMP_NUM_THREADS"], made["OPENBLAS_NUM_THREADS"], made["MKL_NUM_THREADS"]) == (
        "2",
        "2",
        "5",
    )
    assert "OMP_THREAD_LIMIT" not in made


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system holds no process to cores"
)
def test_an_agent_is_held_to_its_cores_and_says_so(spy: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    assert greet(launch(), spy)["cores"] == mine
    assert greet(launch(cores=(mine[-1],)), spy)["cores"] == [mine[-1]]


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system holds no process to cores"
)
def test_a_core_that_is_not_there_is_lacking_and_in_the_agent_an_error(spy: Path) -> None:
    with pytest.raises(Unavailable, match="stack test is for cores 0, 1000; there are"):
        launch(cores=(0, 1000))
    agent = start_agent(replace(launch(), cores=(0, 1000)), spy, spy.parent / "log", 300)
    with pytest.raises(AgentError, match="asked for cores|Invalid argument"):
        agent.request("hello")


def test_threads_of_the_manifest_reach_the_framework_and_the_results(project: Project) -> None:
    project.edit("seed: 7", "seed: 7\n  threads: 1")
    project.run("-k", "accuracy").assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["threads_used"] == 1
    assert item["stack"] == {"name": "here", "threads": 1, "cores": []}
    assert item["launch"]["lock"] == []


def test_other_threads_than_those_asked_for_are_an_error(project: Project) -> None:
    project.use_faulty(threads=4)
    project.edit("seed: 7", "seed: 7\n  threads: 2")
    result = project.run("-k", "accuracy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*asked for 2 threads, faulty runs with 4 threads; ask for what it can do*"]
    )


def test_options_of_the_manifest_reach_the_predictor(project: Project) -> None:
    project.use_faulty(options={"mode": "compile", "level": 3, "fast": True, "rate": 0.5})
    project.edit(
        "framework: faulty",
        "framework: faulty\n    options: {mode: compile, level: 3, fast: true, rate: 0.5}",
    )
    project.run("-k", "accuracy").assert_outcomes(passed=1)
    assert project.items()[0]["options"] == {
        "mode": "compile",
        "level": 3,
        "fast": True,
        "rate": 0.5,
    }


def declare(project: Project, text: str, name: str = "stacks.yaml") -> None:
    (project.path / name).write_text(text)


def ids(result: pytest.RunResult) -> list[str]:
    return [line.partition("::")[2] for line in result.outlines if "::" in line]


TWO = """
one: {framework: onnxruntime, requirements: [onnxruntime==1.30.0], threads: 1}
two: {framework: onnxruntime, python: "3.99", requirements: [onnxruntime==1.30.0]}
other: {framework: pytorch, requirements: [torch]}
"""


def test_chosen_stacks_are_in_the_ids_and_nothing_is_made_to_collect_them(project: Project) -> None:
    declare(project, TWO)
    cache = project.path / "cache"
    options = ["--collect-only", "-q", "-k", "accuracy", f"--mlms-cache={cache}"]
    chosen = [
        *options,
        "--mlms-stack=two",
        "--mlms-stack=onnxruntime==1.31.1,numpy>=2,<3",
        "--mlms-stack=here",
    ]
    expected = [
        "test_accuracy[two-cpu]",
        "test_accuracy[onnxruntime==1.31.1,numpy<3,>=2-cpu]",
        "test_accuracy[onnxruntime-cpu]",
    ]
    assert ids(project.run(*chosen)) == expected
    assert ids(project.run(*options, "--mlms-stack=all")) == [
        "test_accuracy[one-cpu]",
        "test_accuracy[two-cpu]",
    ]
    assert not cache.exists()


def test_stacks_are_found_beside_the_manifests_in_the_rootdir_and_in_pyproject(
    project: Project,
) -> None:
    (project.folder / "stacks.yaml").write_text("beside: {interpreter: current}")
    declare(project, "root: {framework: onnxruntime, interpreter: current}", "stacks.yml")
    declare(project, "[tool.mlms.stacks.toml]\ninterpreter = 'current'\n", "pyproject.toml")
    found = ids(project.run("--collect-only", "-q", "-k", "accuracy", "--mlms-stack=all"))
    assert found == [
        "test_accuracy[root-cpu]",
        "test_accuracy[toml-onnxruntime-cpu]",
        "test_accuracy[beside-onnxruntime-cpu]",
    ]


def test_an_ini_file_may_choose_stacks(project: Project) -> None:
    declare(project, TWO)
    project.pytester.makeini("[pytest]\nmlms_stack =\n    one\n    two\n")
    assert ids(project.run("--collect-only", "-q", "-k", "accuracy")) == [
        "test_accuracy[one-cpu]",
        "test_accuracy[two-cpu]",
    ]


def test_an_unknown_stack_is_one_usage_error(project: Project) -> None:
    declare(project, TWO)
    result = project.run("--mlms-stack=tow")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --mlms-stack: 'tow' is neither a stack nor a requirement*did you mean 'two'?*"]
    )
    assert "Traceback" not in result.stderr.str()


def test_a_faulty_stacks_file_is_a_usage_error_where_a_stack_is_asked_for(project: Project) -> None:
    declare(project, "one:\n  interpreter: current\n  thread: 1\n")
    result = project.run("--mlms-stack=one")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: stacks.yaml:3: one: unknown key 'thread'; did you mean 'threads'?"]
    )


def test_a_stacks_file_is_no_manifest(project: Project) -> None:
    (project.folder / "stacks.yaml").write_text("one: {interpreter: current}")
    assert ids(project.run("--collect-only", "-q", "-k", "accuracy")) == [
        "test_accuracy[onnxruntime-cpu]"
    ]


def test_ids_are_the_same_on_every_worker(project: Project) -> None:
    project.use_faulty()
    declare(
        project,
        "a: {interpreter: current}\nb: {framework: faulty, interpreter: current, threads: 1}\n",
    )
    result = project.run("--mlms-stack=all", "-n", "2", "-k", "accuracy", "-v")
    result.assert_outcomes(passed=2)
    assert {item["case"] for item in project.items()} == {"a-faulty-cpu", "b-cpu"}
    assert {item["stack"]["name"]: item["stack"]["threads"] for item in project.items()} == {
        "a": None,
        "b": 1,
    }


def test_a_python_that_is_not_here_skips_and_says_what_to_install(project: Project) -> None:
    declare(project, TWO)
    result = project.run("--mlms-stack=two", "-k", "accuracy", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["*stack two: no Python 3.99 on PATH,*install it: 'uv python install 3.99'*"]
    )
    project.run("--mlms-stack=two", "-k", "accuracy", "--mlms-strict").assert_outcomes(errors=1)


def test_an_interpreter_that_is_none_is_an_error_and_one_that_is_not_there_a_skip(
    project: Project,
) -> None:
    project.use_faulty()
    declare(project, "none: {interpreter: /bin/echo}\ngone: {interpreter: ./nowhere/python}\n")
    result = project.run("--mlms-stack=none", "--mlms-stack=gone", "-k", "accuracy", "-rs")
    result.assert_outcomes(errors=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*/bin/echo is not a Python interpreter: asked for its version, it ended with status 0 and said*"
        ]
    )
    result.stdout.fnmatch_lines(
        ["*stack gone: the interpreter */nowhere/python isn't there; install it*"]
    )
    assert "Traceback" not in result.stdout.str()


def test_an_existing_interpreter_runs_the_agent(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.use_faulty()
    link = tmp_path_factory.mktemp("bin") / "python"
    link.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    link.chmod(0o755)
    project.run(f"--mlms-stack={link}", "-k", "accuracy").assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["launch"]["command"][0] == str(link)
    assert item["case"] == f"{link}-faulty-cpu"


def test_a_system_library_that_is_not_here_skips_and_names_its_package(project: Project) -> None:
    project.use_faulty()
    library = "{libwanted.so.1: {library: libnothing.so.9, package: libnothing9}}"
    declare(project, f"mpi: {{interpreter: current, libraries: {library}}}\n")
    result = project.run("--mlms-stack=mpi", "-k", "accuracy", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*stack mpi needs libnothing.so.9; apt-get install libnothing9*"])


def test_a_system_library_is_found_under_the_name_that_is_wanted(tmp_path: Path) -> None:
    if not shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin"):
        pytest.skip("this system has no ldconfig")
    wanted = Library("libmine.so.77", "libc.so.6", "libc6")
    made = prepare(Stack("lent", "any", interpreter=sys.executable, libraries=(wanted,)), tmp_path)
    code = "import ctypes; print(ctypes.CDLL('libmine.so.77').getpid() > 0)"
    done = subprocess.run(
        [*made.command, "-c", code], env=dict(made.env), capture_output=True, text=True
    )
    assert done.stdout.strip() == "True", done.stderr


def test_the_stacks_folder_stands_in_its_environment_variables(tmp_path: Path) -> None:
    made = prepare(
        Stack("here", "any", interpreter="current", env=(("DATA", "{stack}/data"),)), tmp_path
    )
    assert made.env["DATA"] == f"{sys.prefix}/data"


@pytest.mark.slow
def test_a_failed_installation_is_an_error_and_leaves_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    project.use_faulty()
    declare(project, "odd: {framework: faulty, requirements: [no-such-distribution]}\n")
    result = project.run("--mlms-stack=odd", "--mlms-cache=cache", "-k", "accuracy or performance")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [
            "*stack odd can't be made with Python*",
            "  installing ended with status 1:",
            "*No matching distribution found for no-such-distribution*",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    left = {path.name for path in (project.path / "cache" / "stacks").iterdir()}
    assert left == {"requests"}


@pytest.mark.slow
def test_a_real_framework_is_installed_used_and_recorded_and_found_again(project: Project) -> None:
    options = ["--mlms-stack=onnxruntime==1.30.0", "--mlms-cache=cache", "-k", "accuracy"]
    result = project.run(*options)
    result.assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["versions"]["onnxruntime"] == "1.30.0"
    assert "onnxruntime==1.30.0" in item["launch"]["lock"]
    assert item["executable"].startswith(str(project.path / "cache" / "stacks"))
    project.run(*options, "--mlms-stack=here", "-n", "2").assert_outcomes(passed=2)
    assert len({item["executable"] for item in project.items()}) == 2


def test_a_stack_is_gated_against_another_or_itself(project: Project) -> None:
    declare(project, TWO)
    options = ["--collect-only", "-q", "-k", "b8", "--mlms-stack=one", "--mlms-stack=two"]
    against = [*options, "--mlms-against=onnxruntime==1.29.0"]
    assert ids(project.run(*against)) == [
        "test_upgrade[one-vs-onnxruntime==1.29.0-cpu-b8]",
        "test_upgrade[two-vs-onnxruntime==1.29.0-cpu-b8]",
    ]
    assert ids(project.run(*options, "--mlms-aa")) == [
        "test_upgrade[one-aa-cpu-b8]",
        "test_upgrade[two-aa-cpu-b8]",
    ]
    result = project.run(*options, "--mlms-against=towards")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --mlms-against: 'towards' is neither a stack nor a requirement*"]
    )


@pytest.mark.parametrize("name", ["onnxruntime", "torch"])
def test_a_version_with_one_equals_sign_is_refused_and_not_taken_for_hosts(
    project: Project, name: str
) -> None:
    result = project.run(f"--mlms-stack={name}=2.1", f"--mlms-against={name}=2.0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: {name}=2.1 would be a label of hosts; for a version write {name}==2.1"]
    )
    alone = project.run(f"--mlms-stack={name}=2.1")
    assert alone.ret == pytest.ExitCode.USAGE_ERROR
    alone.stderr.fnmatch_lines(
        [f"ERROR: {name}=2.1 is a label of hosts: *(a version has two signs: {name}==2.1)"]
    )
