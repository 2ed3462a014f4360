"""Classes of machines: the facts that make times incomparable, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.keep.history.machine_class import device_kind, machine_class

GIB = 2**30
MACHINE: dict[str, Any] = {
    "host": "a",
    "architecture": "x86_64",
    "cpu": {"model": "Intel(R)  Xeon(R) Processor", "microarchitecture": "icelake"},
    "cores": {"physical": 4, "logical": 8},
    "memory": 16 * GIB,
    "virtual_machine": True,
    "cgroup_limits": {"cpus": None, "memory": None},
    "affinity": list(range(8)),
    "gpus": [{"name": "H100", "sm_clock": 1980}, {"name": "H100", "sm_clock": 345}],
}
H100 = {"name": "H100"}


def changed(**fields: Any) -> dict[str, Any]:
    return {**MACHINE, **fields}


def test_a_class_is_a_text_that_a_person_reads() -> None:
    text = "Intel(R) Xeon(R) Processor (icelake), 8 cores (4 physical), 16 GiB, virtual"
    assert machine_class(MACHINE, "cpu") == text
    assert machine_class(MACHINE, "cuda:1") == f"{text}, H100"
    assert machine_class(MACHINE) == f"{text}, H100"


@pytest.mark.parametrize(
    "fields",
    [
        {"cpu": {"model": "Intel(R)  Xeon(R) Processor", "microarchitecture": "skylake"}},
        {"cores": {"physical": 8, "logical": 8}},
        {"affinity": [2, 3]},
        {"cgroup_limits": {"cpus": 1.5}},
        {"memory": 32 * GIB},
        {"virtual_machine": False},
    ],
)
def test_properties_that_make_times_incomparable_make_another_class(fields: dict[str, Any]) -> None:
    assert machine_class(changed(**fields), "cpu") != machine_class(MACHINE, "cpu")


@given(
    st.fixed_dictionaries(
        {
            "host": st.text(),
            "kernel": st.text(),
            "frequency": st.floats(),
            "load_average": st.lists(st.floats()),
            "governor": st.sampled_from(["powersave", "performance"]),
            "memory_available": st.integers(0, 2**40),
            "temperature": st.floats(),
        }
    )
)
def test_properties_that_change_from_run_to_run_are_not_in_the_class(
    fields: dict[str, Any],
) -> None:
    assert machine_class(changed(**fields)) == machine_class(MACHINE)


@given(st.integers(0, 12), st.sampled_from([1.0, 1.5]), st.floats(0.92, 1), st.floats(0.92, 1))
def test_the_kernels_share_of_the_memory_never_decides_the_class(
    power: int, step: float, one: float, other: float
) -> None:
    """Usual sizes are 2**n and 1.5 * 2**n GiB; a kernel shows 1 to 8 % less."""
    built_in = step * 2**power * GIB
    assert machine_class(changed(memory=built_in * one)) == machine_class(
        changed(memory=built_in * other)
    )


def test_the_cores_that_may_be_used_are_the_least_of_all_limits() -> None:
    limited = changed(affinity=[0, 1, 2, 3], cgroup_limits={"cpus": 2.0})
    assert "2 of 8 cores" in machine_class(limited)
    assert "of 8" not in machine_class(changed(cgroup_limits={"cpus": 16.0}))


def test_which_cores_a_process_is_held_to_is_not_in_the_class() -> None:
    assert machine_class(changed(affinity=[0, 1])) == machine_class(changed(affinity=[6, 7]))


def test_gpus_count_by_their_kind_for_items_that_run_on_them() -> None:
    assert machine_class(changed(gpus=[]), "cpu") == machine_class(MACHINE, "cpu")
    assert machine_class(changed(gpus=[H100]), "cuda:0") == machine_class(MACHINE, "cuda:1")
    other = machine_class(changed(gpus=[{"name": "A100"}]), "cuda:0")
    assert other != machine_class(MACHINE, "cuda:0")
    assert machine_class(changed(gpus=[]), "cuda:0").endswith("unknown cuda")


def test_unlike_gpus_of_a_machine_are_classes_of_their_own() -> None:
    unlike = changed(gpus=[H100, {"name": "A100"}])
    assert machine_class(unlike, "cuda") == machine_class(unlike, "cuda:0")
    assert machine_class(unlike, "cuda:1") != machine_class(unlike, "cuda:0")
    alike = changed(gpus=[H100, H100])
    assert machine_class(alike, "cuda:1") == machine_class(alike, "cuda:0")


def test_a_machine_that_tells_nothing_has_a_class() -> None:
    assert machine_class({}) == "None, None cores, ? GiB"


def test_the_number_of_a_device_is_not_its_kind() -> None:
    assert device_kind("cuda:1") == device_kind("cuda") == "cuda"
