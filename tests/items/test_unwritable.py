"""Items with values that JSON, XML or a terminal can't have: they cost one item, never the run."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from pytest_mlms.keep.results.item_line import NOTED
from pytest_mlms.show.pages.run import read_run
from tests.support.project import Project, write_matrix

NOTES = """
import pytest

@pytest.mark.mlms(manifest="m.yaml")
@pytest.mark.parametrize("value", [1 << 99_999, object(), b"x", {1, "a"}], ids=str)
def test_noted(mlms_case, mlms_recorder, value):
    mlms_recorder.note(value=value)

@pytest.mark.mlms(manifest="m.yaml")
def test_sound(mlms_case, mlms_recorder):
    mlms_recorder.quantity("rmse", 0.5, better="lower")
"""


def test_a_note_that_can_not_be_written_fails_its_item_alone(project: Project) -> None:
    write_matrix(project.path)
    project.pytester.makepyfile(test_own=NOTES.replace("ids=str", "ids=list('abcd')"))
    result = project.run("test_own.py", "--junitxml=x.xml")
    result.assert_outcomes(failed=4, passed=1)
    items = {item["nodeid"]: item for item in project.items()}
    assert len(items) == 5
    big = items["test_own.py::test_noted[matrix-cpu-a]"]
    assert big["verdict"] == "ERROR"
    assert big["unwritten"] == {"value": "an integer of 100,000 bits has no form in JSON"}
    result.stdout.fnmatch_lines(
        ["*what the test noted can't be written; note plain values of JSON instead"]
    )


HOSTILE = """
import numpy
from mlms_predictors import Loaded, Tensor

def versions():
    return {"hostile": "1.0", "a\\x00b\\x1b[31m": "\\x1b[2J", "c\\uffff": "d"}

def devices():
    return ["cpu"]

def load(request):
    inputs = [Tensor("image", "float32", (None, 1, 8, 8))]
    outputs = [Tensor("logits", "float32", (None, 10))]
    return Loaded(None, "cpu", request.threads, inputs, outputs)

def predict(loaded, arrays):
    return [numpy.ones((len(arrays["image"]), 10), "float32")]

def layers(loaded, arrays):
    raise RuntimeError("\\x1b]0;pwned\\x07")
"""


def use_hostile(project: Project, code: str) -> str:
    """Use a predictor with this code for the manifest; return the option that names its folder."""
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / "hostile.py").write_text(code)
    project.use_faulty()
    project.edit("framework: faulty", "framework: hostile")
    return f"--mlms-predictors={folder}"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["here", "xdist"])
def test_what_a_hostile_agent_says_of_itself_can_be_written(
    project: Project, options: tuple[str, ...]
) -> None:
    option = use_hostile(project, HOSTILE)
    trace = ("--mlms-trace=layer", "-k", "accuracy or trace")
    result = project.run(option, "--junitxml=x.xml", *trace, *options)
    assert "INTERNALERROR" not in result.stdout.str()
    assert "\x1b]0;" not in result.stdout.str()
    items = project.items()
    assert len(items) >= 1
    names = {
        element.get("name")
        for element in ElementTree.parse(project.path / "x.xml").iter("property")
    }
    assert r"mlms_version_of_a\x00b\x1b[31m" in names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("request.threads", 'float("nan")'),
        ("request.threads", "10**5000"),
        ('"d"', '"\\ud800"'),
    ],
)
def test_an_agent_that_sends_what_json_does_not_have_costs_its_items(
    project: Project, old: str, new: str
) -> None:
    assert old in HOSTILE
    option = use_hostile(project, HOSTILE.replace(old, new))
    result = project.run(option, "-k", "accuracy", "-n", "1")
    assert "INTERNALERROR" not in result.stdout.str()
    (item,) = project.items()
    assert item["verdict"] == "ERROR"


def test_texts_of_a_dataset_can_not_command_the_terminal(project: Project) -> None:
    labels = [f"\x1b[2J class {number}" for number in range(10)]
    (project.folder / "labels.txt").write_text("\n".join(labels))
    images = np.zeros((3, 8, 8), np.uint8)
    np.savez(project.folder / "x.npz", image=images, label=np.arange(3))
    project.replace_file("digits_test.npz", (project.folder / "x.npz").read_bytes())
    result = project.run("-k", "accuracy", "-v")
    assert "\x1b[2J" not in result.stdout.str()
    assert len(project.items()) == 1


RESERVED = """
import pytest

@pytest.mark.mlms(manifest="m.yaml")
@pytest.mark.parametrize("note", [
    {"device": 5}, {"estimates": {"a": 1}}, {"type": "end"}, {"format": 9}, {"verdict": "PASSED"},
    {"teardown": "x"}, {"machine": 1}, {"seed": 7}, {"quantities": 5},
], ids=lambda note: next(iter(note)))
def test_noted(mlms_case, mlms_recorder, note):
    mlms_recorder.note(**note)

@pytest.mark.mlms(manifest="m.yaml")
@pytest.mark.parametrize("name", NAMES)
def test_of_another_kind(mlms_case, mlms_recorder, name):
    mlms_recorder.note(**{name: 5})
"""


def test_a_note_under_the_name_of_a_field_of_ours_fails_its_item_alone(project: Project) -> None:
    write_matrix(project.path)
    project.pytester.makepyfile(test_own=RESERVED.replace("NAMES", repr(sorted(NOTED))))
    result = project.run("test_own.py", "--junitxml=x.xml")
    assert "INTERNALERROR" not in result.stdout.str()
    result.assert_outcomes(failed=9, passed=len(NOTED))
    assert "Traceback" not in result.stderr.str()
    items = {item["nodeid"]: item for item in project.items()}
    assert len(items) == 9 + len(NOTED)
    for nodeid, item in items.items():
        name = nodeid.partition("cpu-")[2].rstrip("]")
        is_ours = "test_noted" in nodeid
        assert item["verdict"] == ("ERROR" if is_ours else "PASSED")
        assert item.get("unwritten", {}).keys() == ({name} if is_ours else set())
        assert (item["seed"], item["device"], item["type"]) == (0, "cpu", "item")
    assert len(read_run(project.path / "mlms-results" / "latest").items) == 9 + len(NOTED)
