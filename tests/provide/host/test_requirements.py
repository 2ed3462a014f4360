"""The requirements of the items of a real manifest."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.core.records import Stack
from pytest_mlms.keep.results.item_result import identity_of
from pytest_mlms.manifest.load import load
from pytest_mlms.provide.cases import Case, case_of, cases_of
from pytest_mlms.provide.host.requirements import Needs, check_hardware, table_of
from tests.provide.host.test_matching import host
from tests.support.project import DIGITS

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
