"""Host headers, whatever they are."""

from __future__ import annotations

from urllib.parse import urlsplit

from hypothesis import example, given
from hypothesis import strategies as st

from pytest_mlms.show.portal.addresses import ListenAddress, OwnNames

NAMES = OwnNames(ListenAddress("127.0.0.1", 8765), ["https://portal.example.org"])
PARTS = ["localhost", "127.0.0.1", "[::1]", "portal.example.org", ":", "/", "?", "#", "@", "login"]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=2), max_size=6).map("".join))
@example("127.0.0.1/login?")
@example("127.0.0.1:8765")
def test_a_host_that_is_taken_names_no_path_query_or_user(host: str) -> None:
    if NAMES.has_host(host):
        parts = urlsplit(f"http://{host}/runs?a=b#c")
        assert (parts.path, parts.query, parts.fragment) == ("/runs", "a=b", "c")
        assert parts.username is None


@given(st.text())
def test_no_origin_is_an_error(origin: str) -> None:
    assert not NAMES.has_origin(f"http://[{origin}", "127.0.0.1")
