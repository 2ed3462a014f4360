"""Tests of links in answers of servers."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from pytest_mlms.provide.artifacts.answers import resolved

PAGE = "https://index.example/simple/x/"


@pytest.mark.parametrize(
    "address", ["https://evil.test\\.index.example/x.whl", "//evil.test\\@a/x"]
)
def test_an_address_whose_host_clients_read_otherwise_leads_nowhere(address: str) -> None:
    assert resolved(PAGE, address) == ""


@given(st.text("ab.@\\/:?#[]%5c1", max_size=20))
def test_the_host_that_is_judged_is_the_one_that_is_asked(rest: str) -> None:
    url = resolved(PAGE, f"https://{rest}")
    try:
        asked = parse_url(url).host
    except LocationParseError:  # nothing is asked
        return
    if url:
        assert (asked or "") == (urlsplit(url).hostname or "")
