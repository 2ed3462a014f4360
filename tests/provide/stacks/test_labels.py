"""Labels of hosts as stacks, and the visits of each side."""

from __future__ import annotations

import pytest

from pytest_mlms.provide.stacks.labels import VISITS, Label, label_of, side_stacks, visit_of


@pytest.mark.parametrize("text", ["gpu=new-driver", "rack=3", "a.b=1.0+cu12"])
def test_a_name_and_a_value_with_one_sign_between_are_a_label(text: str) -> None:
    assert label_of(text) is not None


@pytest.mark.parametrize("text", ["onnxruntime==1.30.0", "torch", "gpu=", "=new", "9=1", "a=b=c"])
def test_other_texts_are_no_labels(text: str) -> None:
    assert label_of(text) is None


def test_a_stack_of_a_label_is_the_worker_s_own_interpreter() -> None:
    stack, *_ = side_stacks(["gpu=new"])
    assert stack.interpreter == "current"
    assert stack.framework == ""


def test_the_sides_take_turns_visit_by_visit() -> None:
    names = [stack.name for stack in side_stacks(["gpu=new", "gpu=old"])]
    assert names[:4] == ["gpu=new#1", "gpu=old#1", "gpu=new#2", "gpu=old#2"]
    assert len(names) == 2 * VISITS


def test_a_stack_s_name_has_its_label_and_its_visit() -> None:
    assert label_of("gpu=new#2") == Label("gpu", "new")
    assert visit_of("gpu=new#2") == 2


def test_a_label_without_a_visit_has_visit_0() -> None:
    assert label_of("gpu=new") == Label("gpu", "new")
    assert visit_of("gpu=new") == 0


@pytest.mark.parametrize("name", ["here", "onnxruntime==1.30.0", "mine#2"])
def test_other_stacks_have_no_label_and_no_visit(name: str) -> None:
    assert label_of(name) is None
    assert visit_of(name) == 0
