"""Which hosts can run an item, and what is said when none can."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.host.matching import locks_of, misses, nearest_miss
from pytest_mlms.manifest.types import split_constraint

GIB = 2**30


def host(name: str = "gpu1", **changes: Any) -> dict[str, Any]:
    cpu = {
        "name": "cpu",
        "kind": "AMD EPYC",
        "memory": 64 * GIB,
        "locks": [f"{name} core-0", f"{name} core-1"],
    }
    gpu = {"name": "cuda:0", "kind": "NVIDIA H200", "memory": 141 * GIB, "locks": [f"GPU-{name}"]}
    facts = {
        "host": name,
        "labels": {},
        "architecture": "x86_64",
        "cores": 8,
        "devices": [cpu, gpu],
    }
    return {**facts, "frameworks": {"onnxruntime": "1.20.1"}, **changes}


def needs(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "device": "cuda",
        "framework": "onnxruntime",
        "model": {"framework": "onnxruntime >=1.17"},
    }
    return {
        **facts,
        "here": True,
        "exclusive": True,
        "hardware": {},
        "stack": {"cores": []},
        **changes,
    }


def test_a_host_with_everything_fits() -> None:
    asked = {"memory": ">= 32 GiB", "gpu": "h200", "architecture": "x86_64", "cores": ">= 8"}
    assert misses(needs(hardware=asked), host()) == []


@pytest.mark.parametrize(
    ("asked", "lacking"),
    [
        ({"memory": ">= 200 GiB"}, "has 141 GiB on cuda:0, not >= 200 GiB"),
        ({"gpu": "B200"}, "has a NVIDIA H200, not a B200"),
        ({"architecture": "aarch64"}, "is x86_64, not aarch64"),
        ({"cores": "> 8"}, "has 8 cores, not > 8"),
    ],
)
def test_each_lack_is_named(asked: dict[str, str], lacking: str) -> None:
    assert misses(needs(hardware=asked), host()) == [lacking]


def test_a_gpu_is_asked_only_of_cases_on_a_gpu() -> None:
    assert misses(needs(device="cpu", hardware={"gpu": "B200"}), host()) == []


def test_a_framework_of_the_wrong_version_does_not_fit_unless_a_stack_brings_it() -> None:
    asked = needs(model={"framework": "onnxruntime >=1.30"})
    assert misses(asked, host()) == ["has onnxruntime 1.20.1, not >=1.30"]
    assert misses({**asked, "here": False}, host()) == []
    assert misses(needs(framework="mxnet"), host()) == ["has no mxnet"]
    assert misses(needs(), host(frameworks={"onnxruntime": ""})) == []  # the agent will say


def test_a_label_that_the_host_does_not_carry_is_a_lack() -> None:
    asked = needs(labels={"gpu": "new-driver"})
    assert misses(asked, host(labels={"gpu": "new-driver"})) == []
    assert misses(asked, host(labels={"gpu": "old-driver"})) == ["isn't labelled gpu=new-driver"]


def test_the_nearest_miss_is_the_host_that_lacks_least() -> None:
    small = host("small", devices=[], frameworks={})
    said = nearest_miss(needs(hardware={"gpu": "B200"}), [small, host()])
    assert said == "no host of 2 can run this; nearest is gpu1, which has a NVIDIA H200, not a B200"
    assert nearest_miss(needs(), []) == "no host is left"


def test_what_measures_holds_its_device_and_nothing_else() -> None:
    assert locks_of(needs(), host()) == {"GPU-gpu1"}
    assert locks_of(needs(device="cpu"), host()) == {"gpu1 core-0", "gpu1 core-1"}
    assert locks_of(needs(device="cpu", stack={"cores": [1]}), host()) == {"gpu1 core-1"}
    assert locks_of(needs(exclusive=False), host()) == frozenset()


@given(
    st.sampled_from([">=", "<=", "==", ">", "<"]),
    st.integers(0, 4096),
    st.sampled_from(["", "GiB", "MB"]),
)
def test_every_written_constraint_is_read_back(operator: str, number: int, unit: str) -> None:
    factor = {"": 1, "GiB": GIB, "MB": 10**6}[unit]
    assert split_constraint(f" {operator} {number} {unit}".rstrip()) == (operator, number * factor)


@pytest.mark.parametrize("text", ["32 GiB", ">= much", ">=", "=> 8", ">= 32 parsecs"])
def test_what_is_no_constraint_is_refused_with_advice(text: str) -> None:
    with pytest.raises(ValueError, match="write|unit"):
        split_constraint(text)
