"""The locked stack of a case, and the cases that have none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError, StackError, Unavailable
from pytest_mlms.core.records import Stack
from pytest_mlms.keep.lockfile.baseline import LockFile, locked_stack
from pytest_mlms.keep.lockfile.difference import difference_of
from pytest_mlms.keep.lockfile.reading import LockError, lock_text
from pytest_mlms.provide.cases import Case
from tests.support.cases import digits_case
from tests.support.locks import ACCURACY, PACKAGES, PERFORMANCE, line_of, lock_of

FILE = Path("/project/mlms.lock")
CASE = digits_case("upgrade")
MODEL = {"sha256": {str(role): digest for role, digest in CASE.model.sha256.items()}}
NEWER = ["numpy==2.4.6", "onnxruntime==1.32.0"]


def line(nodeid: str = ACCURACY, packages: Sequence[str] = PACKAGES, **fields: Any) -> Any:
    dataset = CASE.loaded.manifest.dataset
    assert dataset is not None
    files = {"model": MODEL, "dataset": {"sha256": dataset.sha256}}
    return line_of(nodeid, packages, **{**files, **fields})


def stack_of(*lines: Any, case: Case = CASE, **declared: Stack) -> Stack:
    file = LockFile(FILE, lock_of(*lines))
    return locked_stack(case, file, "lock", declared)


def refusal_of(error: type[MlmsError], *lines: Any) -> str:
    with pytest.raises(error) as refused:
        stack_of(*lines)
    return str(refused.value)


def test_the_baseline_has_the_locked_packages_and_python() -> None:
    made = stack_of(line())
    assert (made.name, made.framework, made.python) == ("lock", "onnxruntime", "3.11.7")
    assert made.requirements == ("numpy==2.4.6", "onnxruntime==1.20.1")
    assert made.options == ("--no-deps",)


def test_facts_that_the_lock_lacks_are_those_of_the_declared_stack() -> None:
    declared = Stack("ort", "onnxruntime", requirements=("onnxruntime",), env=(("A", "1"),))
    made = stack_of(line(stack={"name": "ort"}), ort=declared)
    assert made.env == (("A", "1"),)


def test_the_variables_that_a_caller_had_are_locked_and_set_again() -> None:
    inherited = {"TF_ENABLE_ONEDNN_OPTS": "0", "LD_PRELOAD": "x.so", "CUDA_VISIBLE_DEVICES": "1"}
    launch = {"packages": list(PACKAGES), "inherited": inherited}
    lock = lock_of(line(launch=launch))
    assert lock.stacks["here"].variables == ("TF_ENABLE_ONEDNN_OPTS=0",)
    assert locked_stack(CASE, LockFile(FILE, lock), "lock", {}).env == (
        ("TF_ENABLE_ONEDNN_OPTS", "0"),
    )
    text = lock_text(lock)
    assert 'variables = ["TF_ENABLE_ONEDNN_OPTS=0"]' in text
    changes = difference_of(lock_of(line()), lock).stacks[0].changes
    assert [(each.name, each.old, each.new) for each in changes] == [
        ("$TF_ENABLE_ONEDNN_OPTS", "", "0")
    ]


def test_among_several_stacks_the_one_with_the_same_name_is_the_baseline() -> None:
    lines = [line(), line(PERFORMANCE, stack={"name": "new"}, launch={"packages": NEWER})]
    assert "onnxruntime==1.20.1" in stack_of(*lines).requirements
    new = digits_case("upgrade", stack=Stack("new", "onnxruntime"))
    assert "onnxruntime==1.32.0" in stack_of(*lines, case=new).requirements


def test_a_stack_of_another_name_is_the_baseline_where_it_is_the_only_one() -> None:
    newest = digits_case("upgrade", stack=Stack("onnxruntime==1.33.0", "onnxruntime"))
    assert "onnxruntime==1.20.1" in stack_of(line(), case=newest).requirements


@pytest.mark.parametrize(
    "other",
    [{"manifest": {"name": "other"}}, {"framework": "mxnet"}, {"device": "cuda:0"}],
)
def test_a_case_without_a_line_is_not_locked(other: Any) -> None:
    text = refusal_of(Unavailable, line(**other))
    assert text == (
        "onnxruntime on cpu is not locked in mlms.lock; "
        "run it without --mlms-against, and 'mlms lock write'"
    )


def test_two_versions_of_one_stack_are_no_baseline() -> None:
    text = refusal_of(Unavailable, line(), line(PERFORMANCE, launch={"packages": NEWER}))
    assert "mlms.lock has several stacks for it: here, here (2)" in text


def test_another_model_or_dataset_is_refused() -> None:
    text = refusal_of(LockError, line(model={"sha256": {"graph": "9" * 64}}))
    assert "mlms.lock is of other files (dataset 5c435567fb584755, graph 9999999999999999" in text
    assert "an upgrade is of one model" in text
    text = refusal_of(LockError, line(dataset={"sha256": "9" * 64}))
    assert "(dataset 9999999999999999, graph 237cb7d43b2c3390 there, dataset 5c4355" in text


def test_among_two_models_of_one_name_the_one_with_the_same_digest_is_the_baseline() -> None:
    other = line("other.yaml::test_accuracy[x]", NEWER, model={"sha256": {"graph": "9" * 64}})
    assert "onnxruntime==1.20.1" in stack_of(line(), other).requirements
    assert "onnxruntime==1.20.1" in stack_of(other, line()).requirements


def case_of_variant(variant: str) -> Case:
    model = CASE.model.model_copy(update={"variant": variant})
    manifest = CASE.loaded.manifest.model_copy(update={"models": [model]})
    loaded = replace(CASE.loaded, manifest=manifest)
    return digits_case("upgrade", loaded=loaded, model=model)


def test_among_two_variants_of_one_file_the_one_of_the_case_is_the_baseline() -> None:
    lines = [line(variant="fp32"), line(PERFORMANCE, NEWER, variant="int8")]
    for variant, version in (("fp32", "1.20.1"), ("int8", "1.32.0")):
        case = case_of_variant(variant)
        assert f"onnxruntime=={version}" in stack_of(*lines, case=case).requirements


def test_a_lock_without_variants_still_has_the_baseline_of_one() -> None:
    assert "onnxruntime==1.20.1" in stack_of(line(), case=case_of_variant("int8")).requirements


def test_a_package_that_cannot_be_had_again_is_named() -> None:
    packages = ["numpy==2.4.6", "onnxruntime==1.0 # editable file:///src"]
    text = refusal_of(StackError, line(packages=packages))
    assert "stack here can't be made again: onnxruntime was installed from a folder" in text
    gone = ["onnxruntime @ file:///project/wheels/onnxruntime-1.0-py3-none-any.whl"]
    text = refusal_of(StackError, line(packages=gone))
    assert "from /project/wheels/onnxruntime-1.0-py3-none-any.whl, which isn't there" in text
