"""Of a recorded stack only versions and harmless variables are taken, or what the operator has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.recorded import recorded_launch
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.exact import ExactSoftware, recreated_stack
from pytest_mlms.provide.stacks.trust import EVERYTHING, Trust, trusted_keys

INDEX = "--index-url=https://me:secret@example.invalid/simple"
OWN = Stack(
    "mine",
    "onnxruntime",
    interpreter="/opt/mine/bin/python",
    requirements=(
        "tiny @ https://example.invalid/tiny-1.0.whl",
        "/wheels/own-1.0-py3-none-any.whl",
    ),
    options=(INDEX, "--no-build-isolation"),
    lock=Path("/project/mine.lock"),
    env=(("PYTHONPATH", "/opt/mine"), ("ORT_MODE", "2")),
    env_passthrough=("MY_*",),
    model_options=(("cache", "/opt/mine/cache"), ("threads_between", True)),
    variant="fp 32",
)
HARMLESS: dict[str, Any] = {
    "interpreter": "current",
    "python": "3.11.7",
    "requirements": ["numpy>=2", "onnxruntime[gpu]==1.20"],
    "installer": "uv",
    "env": {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0,1", "OMP_PLACES": "{0:2}"},
    "env_passthrough": ["CUDA_VISIBLE_DEVICES"],
    "options": {"execution_mode": "parallel", "inter_op_threads": 2, "mem_pattern": False},
    "variant": "int8.v2",
}
HOSTILE = [
    ("agent", {"command": ["/bin/sh", "-c", "any"]}),
    ("container", "any:1"),
    ("serve", {"command": ["/bin/sh", "-c", "any", "{port}"], "timeout": "1 s"}),
    ("endpoint", "http://127.0.0.1:22"),
    ("libraries", {"libx.so": {"library": "libc.so.6", "package": "libc"}}),
    ("env", {"LD_PRELOAD": "x"}),
    ("env", {"PYTHONPATH": "/tmp/x"}),
    ("env", {"XLA_FLAGS": "--xla_dump_to=x"}),
    ("env", {"OMP_PLACES": "/etc/passwd"}),
    ("env_passthrough", ["*"]),
    ("options", {"jax_dump_ir_to": "here"}),
    ("options", {"jax_compilation_cache_dir": "here"}),
    ("options", {"CACHE_DIR": "here"}),
    ("options", {"inductor.rocm.rocm_home": "here"}),
    ("options", {"inductor.cuda.cuda_cxx": "here"}),
    ("options", {"provider": ["/tmp/x"]}),
    ("options", {"provider": "/tmp/x"}),
    ("options", {"compile_backend": "a b"}),
    ("variant", "../int8"),
    ("pip_options", ["--index-url=https://example.invalid/simple"]),
    ("pip_options", ["--extra-index-url=x"]),
    ("pip_options", ["--find-links=/tmp"]),
    ("pip_options", ["--no-build-isolation"]),
]
NEEDLESS = [
    ("interpreter", "/tmp/x"),
    ("python", "/tmp/x"),
    ("requirements", ["numpy", "tiny @ file:///tmp/x"]),
    ("requirements", ["/tmp/x.whl"]),
    ("requirements", ["x.zip"]),
    ("installer", "/tmp/x"),
    ("lock", "/tmp/x"),
    ("pip_options", ["--pre"]),
]


def test_versions_and_harmless_variables_are_taken() -> None:
    assert trusted_keys(HARMLESS, Trust(), "s") == HARMLESS


@pytest.mark.parametrize(("key", "value"), HOSTILE)
def test_what_changes_a_measurement_and_may_run_code_is_refused(key: str, value: Any) -> None:
    with pytest.raises(StackError, match=rf"stack s: results set {key}: .*--trust-run"):
        trusted_keys({key: value}, Trust(), "s")
    assert trusted_keys({key: value}, EVERYTHING, "s") == {key: value}


@pytest.mark.parametrize(("key", "value"), NEEDLESS)
def test_what_exact_packages_make_needless_is_left_out(key: str, value: Any) -> None:
    assert not trusted_keys({key: value}, Trust(), "s").get(key)


def test_what_a_stack_of_the_operator_declares_is_taken() -> None:
    told = {
        "interpreter": "/opt/mine/bin/python",
        "requirements": list(OWN.requirements),
        "pip_options": ["--index-url=https://***@example.invalid/simple"],
        "lock": "/project/mine.lock",
        "env": {"PYTHONPATH": "/opt/mine"},
        "env_passthrough": ["MY_*"],
        "options": {"cache": "/opt/mine/cache"},
        "variant": "fp 32",
    }
    assert trusted_keys(told, Trust([OWN]), "s") == {**told, "pip_options": [INDEX]}
    with pytest.raises(StackError, match="results set env: PYTHONPATH"):
        trusted_keys({"env": {"PYTHONPATH": "/opt/other"}}, Trust([OWN]), "s")
    with pytest.raises(StackError, match="results set options: cache"):
        trusted_keys({"options": {"cache": "/opt/other"}}, Trust([OWN]), "s")


@pytest.mark.parametrize(
    ("package", "problem"),
    [
        ("tiny @ https://example.invalid/other.whl", "results have tiny from https://example"),
        ("tiny==1.0 # https://example.invalid/other.whl", "results have tiny from https://example"),
        ("tiny @ git+file:///tmp/x", "results have tiny from git"),
        ("--index-url==https://example.invalid", "names no package and version"),
        ("tiny==https://example.invalid", "is no version of tiny"),
        (f"any:1 @ sha256:{'0' * 64}", "it ran in the image"),
    ],
)
def test_packages_are_names_and_versions(package: str, problem: str) -> None:
    exact = ExactSoftware("s", "onnxruntime", "3.11.7", (package,))
    with pytest.raises(StackError, match=problem):
        recreated_stack("again", exact, Trust())


def test_a_package_may_come_from_an_address_that_a_stack_of_the_operator_has() -> None:
    address = "tiny @ https://example.invalid/tiny-1.0.whl"
    exact = ExactSoftware("s", "onnxruntime", "3.11.7", (address,))
    assert recreated_stack("again", exact, Trust([OWN])).requirements == (address,)


@pytest.mark.parametrize("python", ["", "/tmp/x", "../x", "3.11.7/x", "3"])
def test_a_python_is_a_version(python: str) -> None:
    exact = ExactSoftware("s", "onnxruntime", python, ("numpy==2.4.6",))
    with pytest.raises(StackError, match="is no version of Python"):
        recreated_stack("again", exact, EVERYTHING)


def test_a_program_is_one_that_the_operator_has(tmp_path: Path) -> None:
    def program(path: object, trust: Trust) -> Path | None:
        return trust.program(recorded_launch({"launch": {"command": [str(path)]}}), tmp_path)

    other = tmp_path / "python"
    other.touch()
    own = Stack("s", "onnxruntime", interpreter=str(other))
    assert program(sys.executable, Trust()) == Path(sys.executable)
    assert program(other, Trust()) is None
    assert program(other, Trust([own])) == other
    assert program(other, EVERYTHING) == other
