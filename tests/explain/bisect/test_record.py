"""bisect.json: what is written is read again, and that of another question is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.bisect.judgement import Judgement
from pytest_mlms.explain.bisect.question import End
from pytest_mlms.explain.bisect.record import (
    Conclusion,
    Probe,
    Record,
    StackRecord,
    hold_record,
    read_record,
    set_aside,
)
from pytest_mlms.explain.bisect.search import Outcome
from tests.support.questions import QUESTION

BAD = Judgement(
    outcome=Outcome.BAD,
    quantity="latency",
    verdict="REGRESSED",
    a=1.0,
    b=1.1,
    unit="s",
    of="rounds",
    ratio=1.1,
    low=1.09,
    high=None,
    tolerance=0.03,
    layers=(("conv", "Conv", None, 0.1, 0.1, 1.0),),
)
MISSING = Judgement(Outcome.UNAVAILABLE, "", "SKIPPED", reason="no such package")


def record() -> Record:
    probes = [
        Probe("pace-1.0", "pace-2.0", "ends", 1, BAD, run="r", nodeid="n", seconds=3.2),
        Probe("pace-1.0", "pace-1.5", "search", 1, MISSING),
        Probe("pace-1.0", "pace-2.0", "neighbours", 2, BAD),
    ]
    answer = Conclusion("range", "pace-1.0", "pace-2.0", "pace", "1.0", "2.0", ("1.5",), (), BAD)
    stacks = {"pace-1.0": StackRecord("pacekit", ("pace==1.0",), packages=("pace==1.0",))}
    releases = ["1.0", "1.5", "2.0"]
    return Record(QUESTION, releases=releases, stacks=stacks, probes=probes, answer=answer)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "bisect.json"
    record().write(path)
    assert read_record(path, QUESTION) == record()


def test_a_judgement_of_neighbours_rests_on_data_of_its_own() -> None:
    made = record()
    assert made.find("pace-1.0", "pace-2.0", "search", 1) == made.probes[0]
    assert made.find("pace-1.0", "pace-2.0", "neighbours", 2) == made.probes[2]
    made.probes.pop()
    assert made.find("pace-1.0", "pace-2.0", "neighbours", 2) is None
    assert made.find("pace-1.0", "pace-2.0", "neighbours", 1) is None
    assert made.find("pace-1.0", "pace-2.0", "ends", 2) is None


def test_what_could_not_be_installed_is_tried_again() -> None:
    made = record()
    assert made.measured == 2
    made.reopen()
    assert made.answer is None
    assert [probe.after for probe in made.probes] == ["pace-2.0", "pace-2.0"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("bad", End("pace==3.0"), "bad is pace==2.0 there, and pace==3.0 here"),
        ("quantity", "crash", "quantity is not given there, and crash here"),
        ("requirements", (), "and not given here"),
        ("machine", "another machine", "and another machine here"),
        ("model", {"graph": "4567"}, "model is"),
    ],
)
def test_the_record_of_another_question_is_refused(
    tmp_path: Path, name: str, value: object, shown: str
) -> None:
    path = tmp_path / "bisect.json"
    record().write(path)
    changes = {name: value}
    with pytest.raises(MlmsError, match="is of another question: ") as raised:
        read_record(path, replace(QUESTION, **changes))  # type: ignore[arg-type]
    assert shown in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not JSON"),
        ("[1]", "has format None"),
        ('{"format": 2}', "has format 2, and this pytest-mlms reads 1"),
        ('{"format": 1}', "question: "),
        ("\x00\xff", "is not JSON"),
        ("[" * 100_000, "is not JSON: it is nested too deeply"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "bisect.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(MlmsError, match=problem):
        read_record(path, QUESTION)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="to go on with; name it with --file"):
        read_record(tmp_path / "bisect.json", QUESTION)


def test_an_earlier_record_is_set_aside_and_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "bisect.json"
    assert set_aside(path) is None
    kept = []
    for text in ("first", "second", "third"):
        path.write_text(text)
        kept.append(set_aside(path))
    assert [other.read_text() for other in kept if other] == ["first", "second", "third"]
    assert not path.exists()


def test_a_record_is_held_once_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "bisect.json"
    with hold_record(path):
        pattern = r"bisect.json is in use by .*; wait for it, or name"
        with pytest.raises(MlmsError, match=pattern), hold_record(path):
            pytest.fail("it is held")
        with hold_record(tmp_path / "other.json"):
            pass
    with hold_record(path):
        pass
    assert not path.exists()


def test_a_folder_that_is_not_there_is_left_to_the_writing(tmp_path: Path) -> None:
    with hold_record(tmp_path / "nowhere" / "bisect.json"):
        pass
