"""The key that lets stacks decode pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.small_manifest import DATASET, IMAGE, errors_of, small

STACK = {"preprocess": "stack"}
PICTURES = [{**IMAGE, "steps": ["decode"]}]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"inputs": PICTURES}, "there is no dataset"),
        ({"dataset": DATASET}, "no input's steps begin with decode"),
    ],
)
def test_stacks_that_have_nothing_to_decode_are_an_error(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    (error,) = errors_of(tmp_path, small(**changes, evaluate=STACK))
    assert f"stacks decode no pictures here, as {reason}; leave" in error
