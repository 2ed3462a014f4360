"""Environment variables of agents and installers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.provide.stacks.variables import (
    advice_on_missing,
    agent_variables,
    chosen_by_caller,
    installer_variables,
    is_secret,
    passed_through,
)
from tests.support.project import PREDICTORS, Project


def is_given(name: str, *more: str) -> bool:
    return name in agent_variables({name: "x"}, more)


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "TMPDIR", "LC_ALL", "TZ", "XDG_CACHE_HOME"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        *("OMP_PROC_BIND", "KMP_AFFINITY", "MKL_DEBUG_CPU_TYPE", "OPENBLAS_CORETYPE"),
        *("TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS", "ORT_DISABLE_ALL", "MXNET_SUBGRAPH_BACKEND"),
        *("PYTORCH_CUDA_ALLOC_CONF", "TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME", "HF_HOME"),
        *("TOKENIZERS_PARALLELISM", "COVERAGE_PROCESS_START", "CC"),
    ],
)
def test_an_agent_gets_what_frameworks_need(name: str) -> None:
    assert is_given(name)


def test_what_a_caller_chooses_is_told_without_places_secrets_and_what_the_stack_has() -> None:
    env = {
        **dict.fromkeys(["TF_ENABLE_ONEDNN_OPTS", "KMP_AFFINITY", "LD_PRELOAD", "MY_MODE"], "1"),
        **dict.fromkeys(["PATH", "HOME", "HF_HOME", "CUDA_CACHE_PATH", "CONDA_PREFIX"], "/x"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": "2",
        "MY_TOKEN": "s3cret",
    }
    assert chosen_by_caller(env, ["OMP_NUM_THREADS"], ["MY_*"]) == {
        "KMP_AFFINITY": "1",
        "LD_PRELOAD": "1",
        "MY_MODE": "***",
        "MY_TOKEN": "***",
        "TF_ENABLE_ONEDNN_OPTS": "1",
    }


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "CI_JOB_TOKEN"),
        *("SSH_AUTH_SOCK", "DOCKER_AUTH_CONFIG", "KUBECONFIG", "DATABASE_URL", "PGPASSWORD"),
        *("HF_TOKEN", "NVIDIA_API_KEY", "NGC_API_KEY", "MLMS_SECRET", "ONNX_AUTH"),
        *("MLMS_HISTORY", "MLMS_CACHE", "COVERAGE_SERVER"),
        *("TF_VAR_password", "TF_TOKEN_app_terraform_io", "TF_CLI_ARGS"),
        *("https_proxy", "PIP_INDEX_URL", "UV_INDEX_PRIVATE_PASSWORD"),
        *("MY_OWN", "GOOGLE_APPLICATION_CREDENTIALS", "DBUS_SESSION_BUS_ADDRESS"),
    ],
)
def test_an_agent_gets_nothing_else_unless_it_is_named(name: str) -> None:
    assert not is_given(name)
    assert is_given(name, name)
    assert is_given(name, "UNRELATED", f"{name[:3]}*")


def test_an_installer_gets_its_own_settings_with_their_secrets() -> None:
    given = {"PIP_INDEX_URL", "UV_INDEX_PRIVATE_PASSWORD", "https_proxy", "SSL_CERT_FILE", "PATH"}
    kept = {
        "GITHUB_TOKEN",
        "SSH_AUTH_SOCK",
        "AWS_SECRET_ACCESS_KEY",
        "TF_X",
        "CARGO_REGISTRY_TOKEN",
    }
    base = dict.fromkeys([*given, *kept], "x")
    assert set(installer_variables(base)) == given
    assert set(installer_variables(base, ["SSH_*"])) == {*given, "SSH_AUTH_SOCK"}


def test_settings_of_git_that_may_be_tokens_do_not_reach_build_scripts() -> None:
    kept = {"GIT_CONFIG_COUNT", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_PARAMETERS", "GIT_SSH_ASKPASS"}
    base = dict.fromkeys([*kept, "GIT_CONFIG_GLOBAL", "GIT_SSH_COMMAND"], "x")
    assert set(installer_variables(base)) == {"GIT_CONFIG_GLOBAL", "GIT_SSH_COMMAND"}


@pytest.mark.parametrize("user", ["me:hidden", "me:hid/den", "a-token"])
def test_an_address_with_a_password_is_a_secret_by_any_name(user: str) -> None:
    value = f"https://{user}@example.invalid/x"
    base = dict.fromkeys(["TORCH_HOME", "CMAKE_ARGS", "https_proxy", "PIP_INDEX_URL"], value)
    assert not agent_variables(base)
    assert set(installer_variables(base)) == {"https_proxy", "PIP_INDEX_URL"}
    assert agent_variables({"TORCH_HOME": "http://h:8080/x@1"}), "no user"
    assert is_given("ANY", "ANY")


@given(st.text("://@a1 ", max_size=20))
def test_an_address_with_a_user_is_found_wherever_it_is(text: str) -> None:
    expected = re.search(r"://[^/\s]*@|://[^/\s]*:[^\d\s]\S*@", text)
    assert is_secret("a", text) == (expected is not None)


@pytest.mark.parametrize("text", ["://:", "://", "://x:a", "@://:a", "://a "])
def test_a_long_value_is_looked_through_once(text: str) -> None:
    """A third of one took 13 s, and the time grew by the square."""
    assert is_secret("a", text * 100_000) == is_secret("a", text * 3)


def test_a_pattern_matches_whole_names_and_their_case() -> None:
    base = {"AB": "1", "ABC": "2", "ab": "3"}
    assert passed_through(base, ["AB"]) == {"AB": "1"}
    assert passed_through(base, ["A*"]) == {"AB": "1", "ABC": "2"}


def test_an_error_that_names_a_variable_says_how_to_pass_it_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_LICENCE", "x")
    text = "'hello' raised KeyError: 'MY_LICENCE' (log: a.log)"
    advice = advice_on_missing(text, {})
    assert advice.startswith("MY_LICENCE is set here, and agents do not get it: pass it on by")
    assert advice_on_missing(text, {"MY_LICENCE": "x"}) == ""
    assert advice_on_missing("KeyError: 'OF_NOBODY'", {}) == ""


def write_needy(project: Project) -> None:
    """Have the manifest's framework ask for a variable."""
    project.use_faulty()
    project.edit("framework: faulty", "framework: needy")
    folder = project.path / "predictors"
    folder.mkdir()
    text = (PREDICTORS / "faulty.py").read_text().replace('"faulty"', '"needy"')
    (folder / "needy.py").write_text(f"import os\nos.environ['MY_LICENCE']\n{text}")


def test_a_predictor_that_needs_a_variable_gets_it_by_the_option(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_LICENCE", "s3cret")
    write_needy(project)
    arguments = ["--mlms-predictors=predictors", "-kaccuracy"]
    result = project.run(*arguments)
    output = "\n".join(result.outlines)
    assert "MY_LICENCE is set here, and agents do not get it" in output
    assert "--mlms-env-passthrough=MY_LICENCE" in output
    assert project.run(*arguments, "--mlms-env-passthrough=MY_L*").ret == 0


def test_a_stack_that_is_declared_passes_variables_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_LICENCE", "s3cret")
    write_needy(project)
    stack = "mine: {framework: needy, interpreter: current, env_passthrough: [MY_LICENCE]}\n"
    (project.path / "stacks.yaml").write_text(stack)
    result = project.run("--mlms-predictors=predictors", "--mlms-stack=mine", "-kaccuracy")
    assert result.ret == 0
    assert "s3cret" not in (project.results / "results.jsonl").read_text()


def test_a_pattern_that_is_none_is_an_error_of_the_stack(project: Project) -> None:
    stack = "mine: {framework: onnxruntime, interpreter: current, env_passthrough: ['A=b']}\n"
    (project.path / "stacks.yaml").write_text(stack)
    result = project.run("--mlms-stack=mine", "-kaccuracy")
    assert "stacks.yaml:1: mine.env_passthrough" in "\n".join([*result.outlines, *result.errlines])
