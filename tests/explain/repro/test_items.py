"""Items are found by their id, a part of it, and the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro.items import find_item
from tests.support.result_lines import line_of


def write_run(results: Path, name: str, *verdicts: str) -> Path:
    """Write a run with an item for each verdict."""
    folder = results / name
    folder.mkdir(parents=True)
    lines = [
        {**line_of(number, verdict), "type": "item", "format": 1}
        for number, verdict in enumerate(verdicts, start=1)
    ]
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_an_item_of_the_last_run_is_found_by_a_part_of_its_id(tmp_path: Path) -> None:
    run = write_run(tmp_path, "one", "FAILED", "PASSED")
    (tmp_path / "latest").symlink_to(run)
    assert find_item("cpu-b2", tmp_path).line["verdict"] == "PASSED"


@pytest.mark.parametrize("begin", ["one::", "{results}/one::"])
def test_a_run_is_named_by_its_name_or_folder(tmp_path: Path, begin: str) -> None:
    write_run(tmp_path, "one", "FAILED")
    text = begin.format(results=tmp_path) + "m.yaml::test_performance[here-cpu-b1]"
    found = find_item(text, tmp_path)
    assert found.run == tmp_path / "one"
    assert found.line["verdict"] == "FAILED"


def test_the_last_line_of_an_item_counts(tmp_path: Path) -> None:
    run = write_run(tmp_path, "one", "ERROR")
    with (run / "results.jsonl").open("a") as file:
        file.write(json.dumps({**line_of(1, "FAILED"), "type": "item", "format": 1}) + "\n")
    assert find_item("one::b1", tmp_path).line["verdict"] == "FAILED"


def test_a_text_that_several_items_have_lists_them(tmp_path: Path) -> None:
    write_run(tmp_path, "one", "FAILED", "FAILED")
    with pytest.raises(MlmsError, match=r"2 items .*\n.*here-cpu-b1\]\n.*here-cpu-b2\]"):
        find_item("one::performance", tmp_path)


def test_a_run_without_items_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="has no results of items; name a run"):
        find_item("anything", tmp_path)
