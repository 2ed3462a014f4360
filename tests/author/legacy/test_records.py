"""Dialects of legacy manifests."""

from __future__ import annotations

import pytest

from pytest_mlms.author.legacy.records import dialect_of
from pytest_mlms.manifest import yaml12
from tests.support.legacy_manifests import A0, A1, A2, detector, with_python


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        (A0, "A0"),
        (A1, "A1"),
        (A1.replace("type: feature", "type: coordinates"), "A1"),
        (A2, "A2"),
        (detector(), "A2"),
        (detector(background_index="0"), "A3"),
        (f"{A2}before_preprocess: import os\n", "A3"),
        (with_python("torchvision", "softmax"), "B"),
    ],
)
def test_a_dialect_is_told_by_the_form_of_a_file(text: str, dialect: str) -> None:
    assert dialect_of(yaml12.parse(text, keep_written=True).value) == dialect


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "language: go",
        "framework: [pytest, unittest]",
        "name: native\nframework: x\nmodels: []",
    ],
)
def test_other_files_have_no_dialect(text: str) -> None:
    assert dialect_of(yaml12.parse(text, keep_written=True).value) is None
