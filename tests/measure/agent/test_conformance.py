"""The requirements of docs/agents.md: agents that meet them, and agents that break each of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from mlms_predictors._run import protocol, replies
from mlms_predictors._run.scenarios import CAPACITY
from mlms_predictors._run.worker import REQUESTS

from pytest_mlms.cli.agent import mean_of
from pytest_mlms.cli.main import main
from pytest_mlms.core.errors import AgentError, Unavailable
from pytest_mlms.core.records import Kind, Stack
from pytest_mlms.manifest.schema import Generate
from pytest_mlms.measure.agent.conformance import REQUIREMENTS, Subject, check_agent
from pytest_mlms.measure.agent.opening import open_predictor
from pytest_mlms.measure.agent.process import WORKER
from pytest_mlms.measure.agent.registry import GROUPS
from pytest_mlms.provide.stacks.launch import prepare
from tests.support.agents import faulty_spec, open_faulty
from tests.support.broken_agents import FAULTS, SOUND
from tests.support.cases import faulty_case
from tests.support.project import ROOT

conformance = import_module("pytest_mlms.measure.agent.conformance")

PAGE = (ROOT / "docs" / "agents.md").read_text()
BROKEN = ROOT / "tests" / "support" / "broken_agents.py"
MODEL = ROOT / "pytest_mlms" / "keep" / "history" / "control.onnx"
HANG = 3.0
"""Seconds after which these agents hang; they answer in milliseconds."""

HANGING = ("says_nothing", "hangs_in_load")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
ON_TWO_CORES = ("hold.cores", "move.cores")
RECORDS: dict[str, Any] = {
    "hello": replies.HelloReply,
    "load": replies.LoadReply,
    "run": replies.RunReply,
    "usage": replies.UsageReply,
    "bind": replies.BindReply,
    "turn": replies.TurnReply,
    "repeats": replies.RepeatsReply,
    "idle": replies.IdleReply,
    "move": replies.MoveReply,
}
SPECIFIED = [name for group in ("use", "performance", "upgrades") for name in GROUPS[group]]


def problems_of(folder: Path, *command: str, timeout: float = 60.0) -> dict[str, str | None]:
    """Return what is wrong with an agent, by requirement; None for what was not checked."""
    stack = Stack("check", "onnxruntime", agent=(sys.executable, *command))
    subject = Subject(
        launch=prepare(stack, folder),
        framework="onnxruntime",
        files={"graph": MODEL},
        log=folder / "agent.log",
        timeout=timeout,
        answer=mean_of,
    )
    return {requirement.name: problem for requirement, problem in check_agent(subject)}


def failed(problems: dict[str, str | None]) -> list[str]:
    return [name for name, problem in problems.items() if problem]


def test_our_own_agent_meets_all_requirements(tmp_path: Path) -> None:
    worker = (str(WORKER), str(WORKER.parent.parent / "onnxruntime.py"))
    problems = problems_of(tmp_path, *worker)
    assert set(problems.values()) == {""}, problems


@pytest.mark.parametrize("name", SOUND)
def test_an_agent_without_a_fault_meets_them(name: str, tmp_path: Path) -> None:
    problems = problems_of(tmp_path, str(BROKEN), name)
    assert failed(problems) == [], problems
    assert (None in problems.values()) == (name == "has_no_turns")
    assert (tmp_path / "agent.log").stat().st_size < 10 << 20, "each of a few logs is bounded"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_breaks_its_requirement_first(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "_END_SECONDS", HANG)
    requirement, _ = FAULTS[name]
    if requirement in ON_TWO_CORES and CORES < 2:
        pytest.skip("there are no two cores")
    timeout = HANG if name in HANGING else 60.0
    problems = problems_of(tmp_path, str(BROKEN), name, timeout=timeout)
    assert failed(problems)[:1] == [requirement], problems


def test_each_requirement_has_an_agent_that_breaks_it() -> None:
    broken = {requirement for requirement, _ in FAULTS.values()}
    assert broken == {requirement.name for requirement in REQUIREMENTS}


def test_a_crash_is_told_with_the_log(tmp_path: Path) -> None:
    problem = problems_of(tmp_path, str(BROKEN), "crashes_in_load")["load.answer"] or ""
    assert "killed by SIGSEGV" in problem
    assert "Fatal Python error: Segmentation fault" in problem


def test_of_an_agent_that_loads_nothing_no_more_is_asked(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, str(BROKEN), "crashes_in_load")
    rest = list(problems.values())[list(problems).index("load.answer") + 1 :]
    assert rest
    assert set(rest) == {None}


def test_the_command_prints_each_requirement_and_its_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["agent", "check", sys.executable, str(BROKEN), "stops_early"])
    output = capsys.readouterr().out
    assert status == 1
    assert "FAILED run.stop: asked for 0.2 s, it took" in output
    assert f"{len(REQUIREMENTS) - 1} met, 1 failed, 0 not checked" in output
    assert "       agents.md asks: it ends after `seconds` and `least` calls" in output


def test_the_command_ends_with_0_where_all_are_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "check", sys.executable, str(BROKEN), "nothing"]) == 0
    assert "0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "name the program"),
        (["--framework", "tflite", "./agent"], "--file graph=PATH"),
        (["--file", "graph", "./agent"], "write ROLE=PATH"),
        (["--file", "graph=nowhere.onnx", "./agent"], "there is no such file"),
        (["./nowhere"], f"mlms: there is no program {Path('nowhere').absolute()}; build it, or"),
        (["mlms-nowhere"], "is not on PATH"),
    ],
)
def test_wrong_arguments_of_the_command_are_told(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agent", "check", *arguments]) == 2
    assert error in capsys.readouterr().err


def test_an_item_is_not_run_by_an_agent_that_lacks_its_requests(tmp_path: Path) -> None:
    stack = Stack("own", "faulty", agent=(sys.executable, str(BROKEN), "has_no_turns"))
    case = faulty_case()
    spec = faulty_spec(tmp_path)
    launch = prepare(stack, tmp_path)
    kinds: dict[Kind, str] = {"upgrade": "bind, turn", "trace": "trace"}
    for kind, missing in kinds.items():
        lacking = replace(spec, case=replace(case, kind=kind), launch=launch)
        with pytest.raises(Unavailable, match=f"doesn't answer {missing}"), open_predictor(lacking):
            pass


class Row(NamedTuple):
    """A row of a request's table: a field of the request or of its reply."""

    field: str
    side: str
    is_optional: bool


def tables() -> Iterator[tuple[str, list[Row]]]:
    """Yield each request of the page, and the rows of its table."""
    for name, section in re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE):
        rows = re.findall(r"^\| (\*?)`(\w+)`\*? \| (request|reply) \|", section, re.MULTILINE)
        yield name, [Row(field, side, bool(star)) for star, field, side in rows]


def test_the_page_has_the_fields_of_each_reply() -> None:
    found = dict(tables())
    del found["Errors"]
    assert list(found) == SPECIFIED
    for name, rows in found.items():
        record = RECORDS.get(name)
        expected = [] if record is None else list(record._fields)
        optional = set() if record is None else set(record._field_defaults)
        told = [row for row in rows if row.side == "reply"]
        assert [row.field for row in told] == expected, name
        assert {row.field for row in told if row.is_optional} == optional, name


def test_the_page_has_the_fields_of_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[set[str]]] = {}
    encode = protocol.encode

    def noting(header: dict[str, Any], arrays: Any = ()) -> list[Any]:
        asked.setdefault(header["type"], []).append(set(header) - {"type", "number"})
        return encode(header, arrays)

    monkeypatch.setattr(protocol, "encode", noting)
    batch = {"image": np.zeros((1, 1, 8, 8), np.float32)}
    with open_faulty(tmp_path) as predictor:
        predictor.predict(batch)
        for batches in ([batch], []):
            predictor.run("offline", batches, seconds=0, least=1, longest=1)
        predictor.last_outputs(0)
        predictor.usage()
        predictor.bind([batch])
        predictor.turn()
        predictor.repeated_calls()
        predictor.idle(0.0)
        predictor.hold(list(predictor.cores or ()))
        predictor.moved({core: core for core in predictor.cores or ()})
    case = faulty_case()
    manifest = case.loaded.manifest.model_copy(update={"generate": Generate(prompt="image")})
    generating = replace(case, loaded=replace(case.loaded, manifest=manifest))
    with pytest.raises(AgentError, match="NotImplementedError"), open_faulty(tmp_path, generating):
        pass
    for name, rows in tables():
        if name == "Errors":
            continue
        own = [row for row in rows if row.side == "request"]
        assert {row.field for row in own} == set.union(*asked[name]), name
        always = set.intersection(*asked[name])
        assert {row.field for row in own if not row.is_optional} == always, name


def test_the_page_has_the_groups_and_requests_of_the_code() -> None:
    rows = re.findall(r"^\| ([\w ]+) \| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    told = {group: tuple(re.findall(r"`(\w+)`", names)) for group, names in rows}
    assert {group: told[group] for group in GROUPS} == GROUPS
    assert sorted(sum(GROUPS.values(), ())) == sorted(REQUESTS)


def test_the_page_has_the_requirements_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(each.name, each.text) for each in REQUIREMENTS]


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert f"The version of the protocol is {protocol.VERSION}." in PAGE
    assert f"of at most {protocol.MAX_HEADER >> 20} MiB" in PAGE
    assert f"{CAPACITY:,} calls are made" in PAGE
    for name in ("start", "end", "wait", "cpu", "at"):
        assert f"`{protocol.TIME}{name}`" in PAGE
    for dtype in re.findall(r"`([<>|]\w+)`", PAGE):
        assert protocol._DTYPE.match(dtype), dtype
