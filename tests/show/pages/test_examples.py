"""The worst inputs, as a report reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.show.pages.examples import WORST, Example, Examples, read_examples
from tests.show.pages.test_mistakes import item_with


def test_examples_that_were_kept_are_read(tmp_path: Path) -> None:
    example = Example(3, "row 3", None, {"label": "a"}, texts={"x": "text"})
    found = Examples(10, 1, (example,))
    (tmp_path / WORST).write_text(json.dumps(to_plain(found)))
    item = replace(item_with(tmp_path, ""), artifacts={WORST: WORST})
    assert read_examples(item) == found


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "[" * 100_000, '{"inputs": "many"}', '{"examples": [{}]}']
)
def test_a_damaged_file_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / WORST).write_text(content)
    item = replace(item_with(tmp_path, ""), artifacts={WORST: WORST})
    assert read_examples(item) is None
