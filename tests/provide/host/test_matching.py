"""Matching of items and hosts, and the sentence about items that no host can run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.core.records import Stack
from pytest_mlms.keep.results.item_result import identity_of
from pytest_mlms.manifest.load import load
from pytest_mlms.manifest.types import split_constraint
from pytest_mlms.provide.cases import Case, case_of, cases_of
from pytest_mlms.provide.host.matching import (
    Needs,
    check_hardware,
    locks_of,
    misses,
    nearest_miss,
    table_of,
)
from tests.support.project import DIGITS

GIB = 2**30


def host(name: str = "gpu1", **changes: Any) -> Any:
    cpu = {
        "name": "cpu",
        "kind": "AMD EPYC",
        "memory": 64 * GIB,
        "locks": [f"{name} core-0", f"{name} core-1"],
    }
    gpu = {
        "name": "cuda:0",
        "kind": "NVIDIA H200",
        "memory": 141 * GIB,
        "locks": [f"GPU-{name}"],
    }
    facts = {
        "host": name,
        "labels": {},
        "architecture": "x86_64",
        "cores": 8,
        "devices": [cpu, gpu],
        "frameworks": {"onnxruntime": "1.20.1"},
    }
    return {**facts, **changes}


def needs(**changes: Any) -> Any:
    facts = {
        "device": "cuda",
        "framework": "onnxruntime",
        "model": {"framework": "onnxruntime >=1.17"},
        "here": True,
        "exclusive": True,
        "hardware": {},
        "labels": {},
        "stack": {"cores": []},
    }
    return {**facts, **changes}


def test_a_host_with_everything_is_missing_nothing() -> None:
    asked = {"memory": ">= 32 GiB", "gpu": "h200", "architecture": "x86_64", "cores": ">= 8"}
    assert misses(needs(hardware=asked), host()) == []


@pytest.mark.parametrize(
    ("key", "asked", "miss"),
    [
        ("memory", ">= 200 GiB", "has 141 GiB on cuda:0, not >= 200 GiB"),
        ("gpu", "B200", "has a NVIDIA H200, not a B200"),
        ("architecture", "aarch64", "is x86_64, not aarch64"),
        ("cores", "> 8", "has 8 cores, not > 8"),
    ],
)
def test_missing_hardware_is_named(key: str, asked: str, miss: str) -> None:
    assert misses(needs(hardware={key: asked}), host()) == [miss]


def test_a_missing_device_is_named_alone() -> None:
    asked = needs(device="cuda:1", hardware={"cores": "> 8"})
    assert misses(asked, host()) == ["has no device cuda:1"]


def test_a_gpu_is_asked_only_of_cases_on_a_gpu() -> None:
    asked = needs(device="cpu", hardware={"gpu": "B200"})
    assert misses(asked, host()) == []


def test_a_framework_that_is_not_installed_is_named() -> None:
    assert misses(needs(framework="mxnet"), host()) == ["has no mxnet"]


def test_a_framework_of_another_version_is_named() -> None:
    asked = needs(model={"framework": "onnxruntime >=1.30"})
    assert misses(asked, host()) == ["has onnxruntime 1.20.1, not >=1.30"]


def test_a_framework_that_the_stack_brings_is_not_asked_of_the_host() -> None:
    asked = needs(model={"framework": "onnxruntime >=1.30"}, here=False)
    assert misses(asked, host()) == []


@pytest.mark.parametrize("version", ["", "built by hand"])
def test_a_version_that_can_not_be_compared_is_left_to_the_agent(version: str) -> None:
    assert misses(needs(), host(frameworks={"onnxruntime": version})) == []


def test_a_label_that_the_host_does_not_carry_is_named() -> None:
    asked = needs(labels={"gpu": "new-driver"})
    assert misses(asked, host(labels={"gpu": "new-driver"})) == []
    assert misses(asked, host(labels={"gpu": "old-driver"})) == ["isn't labelled gpu=new-driver"]


def test_the_nearest_miss_is_of_the_host_that_is_missing_least() -> None:
    asked = needs(hardware={"gpu": "B200"})
    small = host("small", devices=[], frameworks={})
    expected = "no host of 2 can run this; nearest is gpu1, which has a NVIDIA H200, not a B200"
    assert nearest_miss(asked, [small, host()]) == expected


def test_workers_of_one_host_count_once() -> None:
    asked = needs(hardware={"gpu": "B200"})
    assert nearest_miss(asked, [host(), host()]).startswith("no host of 1 can run this")


def test_without_hosts_there_is_no_nearest_miss() -> None:
    assert nearest_miss(needs(), []) == "no host is left"


@pytest.mark.parametrize(
    ("changes", "locks"),
    [
        ({"device": "cuda"}, {"GPU-gpu1"}),
        ({"device": "cpu"}, {"gpu1 core-0", "gpu1 core-1"}),
        ({"device": "cpu", "stack": {"cores": [1]}}, {"gpu1 core-1"}),
        ({"device": "cuda", "stack": {"cores": [1]}}, {"GPU-gpu1"}),
        ({"exclusive": False}, set()),
        ({"device": "cuda:1"}, set()),
    ],
)
def test_an_item_that_measures_holds_its_device_or_its_cores(
    changes: dict[str, Any], locks: set[str]
) -> None:
    assert locks_of(needs(**changes), host()) == locks


OPERATORS = st.sampled_from([">=", "<=", "==", ">", "<"])
FACTORS = {"": 1, "GiB": GIB, "MB": 10**6}


@given(OPERATORS, st.integers(0, 4096), st.sampled_from(sorted(FACTORS)))
def test_every_constraint_is_read_back_as_it_was_written(
    operator: str, number: int, unit: str
) -> None:
    text = f" {operator} {number} {unit}"
    assert split_constraint(text.rstrip()) == (operator, number * FACTORS[unit])


@pytest.mark.parametrize("text", ["32 GiB", ">= much", ">=", "=> 8", ">= 32 parsecs"])
def test_a_text_that_is_no_constraint_is_refused_with_advice(text: str) -> None:
    with pytest.raises(ValueError, match="write|unit"):
        split_constraint(text)


HERE = Stack("here", "onnxruntime", interpreter="current")
MADE = Stack("ort", "onnxruntime", requirements=("onnxruntime==1.30.0",), cores=(1,))
LABELLED = Stack("gpu=new-driver#2", "onnxruntime", interpreter="current")


def cases(stack: Stack, folder: Path = DIGITS) -> list[Case]:
    manifest = load(folder / "digits.yaml")
    return cases_of(manifest, "performance", lambda framework: [stack], lambda framework: None)


def item(case: Case | None, *fixtures: str) -> Any:
    """Return what of a pytest item matters here."""
    callspec = SimpleNamespace(params={"mlms_case": case})
    return SimpleNamespace(callspec=callspec, fixturenames=fixtures)


def needs_of(one: Any) -> Needs:
    (needs,) = table_of([one], identity_of).needs
    return needs


def test_the_case_of_an_item_is_its_parameter() -> None:
    (case, *_) = cases(HERE)
    assert case_of(item(case)) is case


def test_an_item_of_another_plugin_has_no_case_and_no_needs() -> None:
    other: Any = SimpleNamespace()
    assert case_of(other) is None
    assert table_of([other], identity_of).needs == []


def test_needs_are_plain_values_with_the_identity_of_the_case() -> None:
    (case, *_) = cases(MADE)
    needs = needs_of(item(case, "mlms_device"))
    assert json.loads(json.dumps(needs)) == needs
    assert needs["framework"] == "onnxruntime"
    assert needs["device"] == "cpu"
    assert needs["stack"]["cores"] == [1]


def test_an_item_that_measures_is_exclusive() -> None:
    (case, *_) = cases(HERE)
    measuring = needs_of(item(case, "mlms_device"))
    other = needs_of(item(case))
    assert measuring["exclusive"]
    assert not other["exclusive"]


def test_only_the_worker_s_own_interpreter_must_have_the_framework() -> None:
    for stack, here in ((HERE, True), (MADE, False)):
        (case, *_) = cases(stack)
        needs = needs_of(item(case))
        assert needs["here"] is here


def test_the_stack_of_a_label_asks_for_the_label_and_has_a_visit() -> None:
    (case, *_) = cases(LABELLED)
    needs = needs_of(item(case))
    assert needs["labels"] == {"gpu": "new-driver"}
    assert needs["visit"] == 2


def test_items_of_one_case_share_a_row() -> None:
    first, second, *_ = cases(HERE)
    other: Any = SimpleNamespace()
    items = [
        item(first, "mlms_device"),
        other,
        item(second, "mlms_device"),
        item(first, "mlms_device"),
        item(first),
    ]
    table = table_of(items, identity_of)
    assert table.rows == [0, -1, 1, 0, 2]
    assert len(table.needs) == 3


def with_hardware(folder: Path, hardware: str) -> Case:
    text = (DIGITS / "digits.yaml").read_text()
    (folder / "digits.yaml").write_text(f"{text}\nhardware: {hardware}\n")
    (case, *_) = cases(HERE, folder)
    return case


def test_a_host_with_the_hardware_of_the_manifest_passes(tmp_path: Path) -> None:
    check_hardware(with_hardware(tmp_path, "{cores: '>= 8'}"), host)


def test_a_host_without_the_hardware_of_the_manifest_is_unavailable(tmp_path: Path) -> None:
    case = with_hardware(tmp_path, "{cores: '> 8'}")
    with pytest.raises(Unavailable, match=r"digits\.yaml:\d+: gpu1 has 8 cores, not > 8"):
        check_hardware(case, host)


def test_a_host_without_the_label_of_the_stack_is_unavailable() -> None:
    (case, *_) = cases(LABELLED)
    with pytest.raises(Unavailable, match="gpu1 isn't labelled gpu=new-driver"):
        check_hardware(case, host)


def test_a_case_that_asks_for_nothing_is_not_checked() -> None:
    (case, *_) = cases(HERE)
    no_host: Any = None
    check_hardware(case, no_host)
