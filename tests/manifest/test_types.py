"""Tests of the value types of manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from pydantic import TypeAdapter

from pytest_mlms.manifest.types import (
    AmountOfMemory,
    Count,
    instead,
    split_constraint,
    split_framework,
    value_type,
)
from tests.support.small_manifest import MODEL, error_of, small


def test_a_framework_has_a_name_and_versions() -> None:
    assert split_framework("onnxruntime >=1.17") == ("onnxruntime", SpecifierSet(">=1.17"))
    assert split_framework("mxnet") == ("mxnet", SpecifierSet(""))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"framework": "onnxruntime 1.17"}, "'1.17' are not versions; write them as in '>=1.17'"),
        ({"framework": ">=1.17"}, "is not a framework; write its name and versions"),
        ({"framework": "onnxrntime"}, "no predictor for 'onnxrntime'; did you mean 'onnxruntime'?"),
        ({"graph": "ftp://host/x"}, "can't fetch ftp:; write a relative path, https://"),
        ({"graph": "gcs://bucket/x"}, "can't fetch gcs:; did you mean gs://BUCKET/FILE?"),
        ({"graph": "pypi:magika#x.onnx"}, "write pypi:PACKAGE==VERSION#FOLDER/FILE"),
        ({"graph": "hf:org/repo/x.onnx"}, "write hf:ORG/REPO@REVISION/FILE"),
        ({"graph": "s3://bucket"}, "write s3://BUCKET/FILE"),
        ({"graph": "doi:10.5281/zenodo.1"}, "write doi:10.NUMBER/NAME/FILE"),
    ],
)
def test_a_wrong_value_of_a_model_says_what_to_write(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    assert message in error_of(tmp_path, small(models=[{**MODEL, **changes}]))


def test_a_close_word_is_proposed_else_all() -> None:
    assert instead("sofmax", ["softmax", "top_k"]) == "did you mean 'softmax'?"
    assert instead("xyz", ["softmax", "top_k"]) == "write one of softmax, top_k"
    assert instead("a" * (64 << 20), ["a" * 600, "b"]).startswith("write one of aaa")


def test_a_constraint_has_an_operator_and_a_value() -> None:
    assert split_constraint(">= 32 GiB") == (">=", 32 * 2.0**30)
    assert split_constraint("<8") == ("<", 8.0)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (AmountOfMemory, "32 GiB", "has no comparison; write '>= 32 GiB'"),
        (AmountOfMemory, ">= 32", "needs a unit; write '>= 32 GiB'"),
        (Count, ">= 8 GiB", "is no count; write '>= 8'"),
    ],
)
def test_a_wrong_constraint_says_what_to_write(kind: Any, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TypeAdapter(kind).validate_python(text)


def test_a_value_with_a_unit_is_text_and_a_plain_one_a_number() -> None:
    assert TypeAdapter(value_type("s", "max")).validate_python("5 ms") == 0.005
    assert TypeAdapter(value_type("nat", "max")).validate_python(0.5) == 0.5
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        TypeAdapter(value_type("", "max")).validate_python(-1.0)
