"""Tests of what fixtures get for an item."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.errors import Unavailable
from pytest_mlms.provide.artifacts.fetch import CaseFiles
from pytest_mlms.resources import open_or_skip, predictor_spec, skip_if_unavailable
from pytest_mlms.session import Session
from tests.support.cases import digits_case
from tests.support.project import launch


def make_session(pytester: pytest.Pytester, *arguments: str) -> Session:
    config = Config.from_pytest(pytester.parseconfig(*arguments))
    return Session(config, pytester.path / "run")


@contextlib.contextmanager
def unavailable() -> Iterator[None]:
    raise Unavailable("no cuda here")
    yield


def test_what_is_unavailable_skips_the_item(pytester: pytest.Pytester) -> None:
    session = make_session(pytester)
    with pytest.raises(pytest.skip.Exception, match="no cuda here"), skip_if_unavailable(session):
        raise Unavailable("no cuda here")


def test_what_is_unavailable_fails_the_item_under_strict(pytester: pytest.Pytester) -> None:
    session = make_session(pytester, "--mlms-strict")
    with pytest.raises(pytest.fail.Exception, match="no cuda here"), skip_if_unavailable(session):
        raise Unavailable("no cuda here")


@pytest.mark.parametrize("arguments", [(), ("--mlms-strict",)])
def test_what_is_unavailable_is_shown_once(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    session = make_session(pytester, *arguments)
    outcomes = (pytest.skip.Exception, pytest.fail.Exception)
    with pytest.raises(outcomes) as caught, skip_if_unavailable(session):
        raise Unavailable("no cuda here")
    assert caught.value.__suppress_context__


def test_a_context_that_can_not_be_opened_skips_the_item(pytester: pytest.Pytester) -> None:
    session = make_session(pytester)
    with pytest.raises(pytest.skip.Exception), open_or_skip(session, unavailable()):
        pass


def fail_within(opening: AbstractContextManager[int]) -> None:
    with opening as value:
        assert value == 5
        raise Unavailable("gone while it was used")


def test_what_is_unavailable_within_a_context_is_an_error(pytester: pytest.Pytester) -> None:
    opening = open_or_skip(make_session(pytester), contextlib.nullcontext(5))
    with pytest.raises(Unavailable):
        fail_within(opening)


def test_each_agent_is_started_with_the_options_and_a_log_of_its_own(
    pytester: pytest.Pytester,
) -> None:
    session = make_session(pytester, "--mlms-timeout=20", "--mlms-allow-code")
    files = CaseFiles({"graph": pytester.path / "graph.onnx"}, None, {})
    case = digits_case()
    item = pytester.getitem("def test_func(): pass")
    first = predictor_spec(case, files, launch(), session, item)
    second = predictor_spec(case, files, launch(), session, item)
    assert first.predictor == session.predictors["onnxruntime"]
    assert first.files == files.model
    assert first.timeout == 20
    assert first.allow_code
    assert first.log != second.log
