"""The launch of a case whose models are on a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.records import Launch, Serve
from pytest_mlms.measure.agent.launching import launch_case
from tests.support.cases import digits_case
from tests.support.project import ROOT

TOKEN = "a-token-of-the-tests-3f9c"


def launched(endpoint: str = "", hosts: tuple[str, ...] = (), serve: Serve | None = None) -> Launch:
    case = digits_case()
    stack = replace(case.stack, framework="oip", endpoint=endpoint, serve=serve)
    predictor = ROOT / "predictors" / "oip.py"
    return launch_case(replace(case, stack=stack), {}, predictor, Path("none"), hosts=hosts)


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost", "http://127.9.9.9"],
)
def test_an_endpoint_of_this_machine_may_be_asked(endpoint: str) -> None:
    assert launched(endpoint).server == {"endpoint": endpoint}


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://models.example.org",
        "http://10.0.0.1:8000",
        "http://0.0.0.0:8000",
        "http://127.0.0.1.example.org",
        "http://2130706433:8000",
    ],
)
def test_another_host_must_be_named(endpoint: str) -> None:
    with pytest.raises(
        StackError, match=r"would send the inputs to .*; allow it by pytest --mlms-endpoint="
    ):
        launched(endpoint)


def test_a_host_that_is_named_may_be_asked() -> None:
    endpoint = "https://models.example.org"
    assert launched(endpoint, ("models.example.org",)).server == {"endpoint": endpoint}


def test_a_token_goes_to_agents_of_endpoints_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLMS_ENDPOINT_TOKEN", TOKEN)
    assert launched("http://127.0.0.1:1").env["MLMS_ENDPOINT_TOKEN"] == TOKEN
    serve = Serve(("server", "{port}"))
    assert "MLMS_ENDPOINT_TOKEN" not in launched(serve=serve).env
    assert "MLMS_ENDPOINT_TOKEN" not in launched().env


def test_a_token_is_not_sent_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLMS_ENDPOINT_TOKEN", TOKEN)
    with pytest.raises(
        StackError, match="would be sent to h in the open; write https://"
    ) as raised:
        launched("http://h", ("h",))
    assert TOKEN not in str(raised.value)
    assert launched("https://h", ("h",)).env["MLMS_ENDPOINT_TOKEN"] == TOKEN
