"""Tests of the recorder of an item."""

from __future__ import annotations

import functools
import math
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from pytest_mlms.core.errors import InvalidRun
from pytest_mlms.core.records import Estimate, Launch, Limit, Place, Verdict
from pytest_mlms.keep.results.line import Judgement
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.limits import judge
from pytest_mlms.warning_types import (
    MlmsArtifactLost,
    MlmsContention,
    MlmsInconclusive,
    MlmsWarning,
)

PLACE = Place(Path("a.yaml"), 7)
LIMIT = Limit("top1", 0.9, Place(Path("a.yaml"), 40))
ABOVE = {"top1": Estimate(0.95, 0.93, 0.97, 0.95, 600, "inputs")}
ASTRIDE = {"top1": Estimate(0.9, 0.88, 0.92, 0.95, 600, "inputs")}
BELOW = {"top1": Estimate(0.8, 0.78, 0.82, 0.95, 600, "inputs")}


class Point(NamedTuple):
    x: float
    y: float


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder("a.yaml::test[x]", tmp_path, PLACE, lambda: {"busy": 0.5, "steal": None})


def settle(recorder: Recorder, estimates: dict[str, Estimate], strict: bool = False) -> None:
    recorder.settle(estimates, judge([LIMIT], estimates), strict)


@pytest.mark.parametrize(
    ("name", "value", "better", "message"),
    [
        ("mean error", 0.5, "lower", "'mean error' is no name of a quantity; write letters"),
        (
            "deviation",
            0.5,
            "lower",
            "'deviation' is a quantity of pytest-mlms; choose another name",
        ),
        ("rmse", math.nan, "lower", "rmse is nan; a quantity is a finite number"),
        ("rmse", 10**400, "lower", "rmse is inf; a quantity is a finite number"),
        ("rmse", 0.5, "less", "better is 'less'; write 'lower' or 'higher'"),
    ],
)
def test_what_is_no_quantity_is_refused(
    recorder: Recorder, name: str, value: float, better: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        recorder.quantity(name, value, better=better)


@pytest.mark.parametrize("unit", ["\x1b[2J", "a\nb", "x" * 41, object()])
def test_a_unit_is_a_short_word(recorder: Recorder, unit: Any) -> None:
    with pytest.raises(ValueError, match="is no unit; write a word of 40 characters at most"):
        recorder.quantity("rmse", 0.5, unit=unit, better="lower")


def write(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def write_byte(path: Path) -> None:
    path.write_bytes(b"x")


def write_too_much(path: Path) -> None:
    path.write_bytes(b"x" * (1 << 20))


def test_what_was_noted_becomes_plain_values(recorder: Recorder) -> None:
    recorder.note(point=Point(1.0, math.inf), path=Path("a/b"))
    recorder.note(path=Path("c"))
    fields = recorder.recording().as_fields()
    assert fields["point"] == {"x": 1.0, "y": None}
    assert fields["path"] == "c"
    assert fields["cpu_shares"] == {"busy": 0.5, "steal": None}


def test_what_has_no_form_in_json_is_told_beside_what_has_one(recorder: Recorder) -> None:
    nested: list[Any] = []
    nested.append(nested)
    recorder.note(size=1 << 5000, thing=object(), name=b"x", nested=nested, sound={"a": 1})
    fields = recorder.recording().as_fields()
    assert fields["sound"] == {"a": 1}
    assert set(fields["unwritten"]) == {"size", "thing", "name", "nested"}
    assert fields["unwritten"]["size"] == "an integer of 5,001 bits has no form in JSON"


def test_an_item_that_recorded_nothing_has_no_fields_of_a_measurement(recorder: Recorder) -> None:
    assert set(recorder.recording().as_fields()) == {
        "artifacts",
        "artifacts_lost",
        "logs",
        "cpu_shares",
    }
    assert recorder.verdict is None


def test_a_limit_that_holds_passes(recorder: Recorder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settle(recorder, ABOVE, strict=True)
    assert recorder.verdict is Verdict.PASSED
    fields = recorder.recording().as_fields()
    assert fields["verdict"] == "PASSED"
    assert fields["margin"] == pytest.approx(0.03 / 0.9)
    assert fields["estimates"]["top1"]["unit"] == "fraction"
    assert fields["limits"] == [
        {"quantity": "top1", "min": 0.9, "place": "a.yaml:40", "verdict": "PASSED"}
    ]


def test_a_broken_limit_fails_with_its_line_and_the_cause(recorder: Recorder) -> None:
    decisions = judge([LIMIT], BELOW)
    with pytest.raises(pytest.fail.Exception, match="limit set by a.yaml:40\nthe cause"):
        recorder.settle(BELOW, decisions, strict=False, cause=lambda: "the cause")
    assert recorder.verdict is Verdict.FAILED


def test_an_undecided_limit_warns_with_its_line(recorder: Recorder) -> None:
    with pytest.warns(MlmsInconclusive, match="top1 is not shown to be at least") as warned:
        settle(recorder, ASTRIDE)
    assert (warned[0].filename, warned[0].lineno) == ("a.yaml", 40)
    assert recorder.verdict is Verdict.INCONCLUSIVE


def test_a_warning_of_contention_names_the_model_and_its_line_of_the_manifest(
    tmp_path: Path,
) -> None:
    recorder = Recorder("a.yaml::test[x]", tmp_path, PLACE, label="digits cpu-b8")
    with pytest.warns(MlmsContention) as warned:
        recorder.warn_of_contention("the measuring thread waited for a core 74 % of the time")
    assert (warned[0].filename, warned[0].lineno) == ("a.yaml", 7)
    assert str(warned[0].message).startswith("digits cpu-b8: the measuring thread waited")


def test_warnings_have_one_line_with_the_model_and_the_case(tmp_path: Path) -> None:
    recorder = Recorder("a.yaml::test[x]", tmp_path, PLACE, label="digits cpu-b8")
    with pytest.warns(MlmsInconclusive) as warned:
        settle(recorder, ASTRIDE)
    text = str(warned[0].message)
    assert "\n" not in text
    assert text.startswith(
        "digits cpu-b8: top1 is not shown to be at least 90.00 %: measured 90.00 %"
    )
    assert text.endswith(
        "; undecided: the limit is inside the interval; a larger dataset narrows it"
    )
    assert text == f"digits cpu-b8: {recorder.undecided}"


def test_the_warning_of_an_upgrade_is_its_headline_with_the_advice(recorder: Recorder) -> None:
    text = "B against A: INCONCLUSIVE\n  latency: A 1 ms\n  try: --mlms-budget"
    judgement = Judgement(Verdict.INCONCLUSIVE, 0.1, text=text)
    with pytest.warns(MlmsInconclusive) as warned:
        recorder.settle_upgrade(judgement, PLACE, strict=False)
    assert str(warned[0].message) == "B against A: INCONCLUSIVE; try: --mlms-budget"


def test_an_undecided_limit_fails_under_strict(recorder: Recorder) -> None:
    with pytest.raises(pytest.fail.Exception, match="top1 is not shown to be at least"):
        settle(recorder, ASTRIDE, strict=True)


def test_an_item_without_limits_has_no_margin(recorder: Recorder) -> None:
    recorder.settle(ABOVE, [], strict=False)
    assert recorder.recording().as_fields()["margin"] is None


@pytest.mark.parametrize(
    ("verdict", "strict"), [(Verdict.REGRESSED, False), (Verdict.INCONCLUSIVE, True)]
)
def test_an_upgrade_that_regressed_fails_with_its_text(
    recorder: Recorder, verdict: Verdict, strict: bool
) -> None:
    judgement = Judgement(verdict, -0.1, text="B is slower")
    with pytest.raises(pytest.fail.Exception, match="B is slower"):
        recorder.settle_upgrade(judgement, PLACE, strict)
    fields = recorder.recording().as_fields()
    assert (fields["verdict"], fields["margin"], fields["text"]) == (
        verdict.value,
        -0.1,
        "B is slower",
    )
    assert "limits" not in fields


def test_an_undecided_upgrade_warns(recorder: Recorder) -> None:
    judgement = Judgement(Verdict.INCONCLUSIVE, 0.1, text="nobody can tell")
    with pytest.warns(MlmsInconclusive, match="nobody can tell"):
        recorder.settle_upgrade(judgement, PLACE, strict=False)


def test_an_item_without_limits_warns_of_its_shortcomings(recorder: Recorder) -> None:
    with pytest.warns(MlmsWarning, match="no kernels"):
        recorder.settle_without_limits(["no kernels"], MlmsWarning, strict=False)
    assert recorder.verdict is Verdict.PASSED


def test_an_item_without_limits_fails_for_its_shortcomings_under_strict(recorder: Recorder) -> None:
    with pytest.raises(pytest.fail.Exception, match="no kernels"):
        recorder.settle_without_limits(["no kernels"], MlmsWarning, strict=True)
    assert recorder.verdict is Verdict.FAILED


def predictor_with(log: Path) -> SimpleNamespace:
    return SimpleNamespace(
        agent=SimpleNamespace(log=SimpleNamespace(path=log)),
        versions={"onnxruntime": "1.30"},
        python="3.11",
        executable="/bin/python",
        device="cpu",
        threads=None,
        cores=(0, 1),
        device_facts=None,
    )


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"versions": {"onnxruntime": "1.31"}}, "onnxruntime was 1.30 and is 1.31"),
        ({"device_facts": {"server": "triton 2"}}, "server was None and is triton 2"),
        ({"device_facts": {"model_versions": "['2']"}}, r"model_versions was None and is \['2'\]"),
    ],
)
def test_what_was_measured_is_the_same_in_all_processes_of_an_item(
    recorder: Recorder, tmp_path: Path, changed: dict[str, Any], expected: str, side: str
) -> None:
    """An endpoint may be upgraded at any time, and so may a package."""
    before = cast(Predictor, predictor_with(tmp_path / "log"))
    after = cast(Predictor, SimpleNamespace(**{**vars(before), **changed}))
    recorder.check_same(before, side)
    recorder.check_same(after, "b" if side == "a" else "a")
    with pytest.raises(InvalidRun, match=f"{expected}: it was changed while it was measured"):
        recorder.check_same(after, side)


def test_the_software_that_ran_and_how_it_was_started_are_recorded(
    recorder: Recorder, tmp_path: Path
) -> None:
    log = tmp_path / "agents" / "a.log"
    predictor = predictor_with(log)
    recorder.launched(Launch(("python", "-I"), {}, lock=("numpy==2.0",)))
    recorder.ran_on(cast(Predictor, predictor))
    recorder.ran_on(cast(Predictor, predictor))
    assert recorder.recording().as_fields()["logs"] == [], (
        "an agent that printed nothing has no log"
    )
    log.parent.mkdir()
    log.write_text("chatter")
    fields = recorder.recording().as_fields()
    assert fields["launch"] == {
        "command": ["python", "-I"],
        "lock": ["numpy==2.0"],
        "inherited": {},
    }
    assert fields["versions"] == {"onnxruntime": "1.30"}
    assert (fields["threads_used"], fields["cores_used"]) == (None, [0, 1])
    assert fields["logs"] == ["agents/a.log"]


def test_an_artifact_that_does_not_fit_is_named_and_removed(small_disk: Path) -> None:
    recorder = Recorder("a.yaml::test[x]", small_disk, PLACE)
    message = r"big\.bin could not be written: No space left .*; make room"
    with pytest.warns(MlmsArtifactLost, match=message) as warned:
        recorder.keep("big.bin", write_too_much)
    assert [(warning.filename, warning.lineno) for warning in warned] == [("a.yaml", 7)]
    recorder.keep("big-2.bin", write_too_much)
    recorder.keep("small.bin", write_byte)
    fields = recorder.recording().as_fields()
    assert list(fields["artifacts"]) == ["small.bin"]
    assert list(fields["artifacts_lost"]) == ["big.bin", "big-2.bin"]
    assert "No space left" in fields["artifacts_lost"]["big.bin"]
    assert not (recorder.folder / "big.bin").exists()


def test_an_artifact_that_is_written_again_stays_as_it_was_where_the_disk_is_full(
    small_disk: Path,
) -> None:
    recorder = Recorder("a.yaml::test[x]", small_disk, PLACE)
    recorder.keep("trace.bin", write_byte)
    with pytest.warns(MlmsArtifactLost):
        recorder.keep("trace.bin", write_too_much)
    assert list(recorder.recording().as_fields()["artifacts"]) == ["trace.bin"]
    assert [path.name for path in recorder.folder.iterdir()] == ["trace.bin"]
    assert (recorder.folder / "trace.bin").read_bytes() == b"x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder.keep("trace.bin", write_too_much)
    recorder.keep("trace.bin", write_byte)
    fields = recorder.recording().as_fields()
    assert list(fields["artifacts"]) == ["trace.bin"]
    assert fields["artifacts_lost"] == {}


def test_an_item_that_runs_again_leaves_the_artifacts_of_its_first_run(tmp_path: Path) -> None:
    folders = []
    for content in (b"first", b"second", b"third"):
        recorder = Recorder("a.yaml::test[x]", tmp_path, PLACE)
        recorder.keep("samples-0.npz", functools.partial(write, content))
        folders.append(recorder.folder)
    contents = [(folder / "samples-0.npz").read_bytes() for folder in folders]
    assert contents == [b"first", b"second", b"third"]
    paths = [recorder.recording().as_fields()["artifacts"]["samples-0.npz"]]
    assert paths == [f"items/{folders[0].name}-3/samples-0.npz"]


def test_items_with_similar_names_have_folders_of_their_own(tmp_path: Path) -> None:
    long_name = "z" * 300
    nodeids = ["a.yaml::test[x/y]", "a.yaml::test[x-y]", f"a.yaml::test[{long_name}]"]
    folders = {Recorder(nodeid, tmp_path, PLACE).folder.name for nodeid in nodeids}
    assert len(folders) == 3
    assert all(len(name) < 120 for name in folders)
