"""Tokens of files and of the environment, and the sessions of browsers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.portal_address import TOKEN_VARIABLE, read_token
from pytest_mlms.show.portal.addresses import PortalError
from pytest_mlms.show.portal.tokens import PURPOSES, SESSION_SECONDS, Token, Tokens, read_tokens

ONE = "first-token-1234567890"
OTHER = "other-token-1234567890"


def test_a_session_ends() -> None:
    tokens = Tokens((Token(ONE), Token(OTHER)))
    cookie = tokens.sign_session(OTHER, now=1000)
    assert tokens.purposes_of_session(cookie, now=1000 + SESSION_SECONDS - 1) == PURPOSES
    assert not tokens.purposes_of_session(cookie, now=1000 + SESSION_SECONDS)


def test_a_session_of_a_token_that_was_removed_is_void() -> None:
    cookie = Tokens((Token(ONE), Token(OTHER))).sign_session(OTHER, now=1000)
    assert not Tokens((Token(ONE),)).purposes_of_session(cookie, now=1000)
    assert not Tokens().purposes_of_session(cookie, now=1000)


@pytest.mark.parametrize("cookie", ["", ".", "9" * 5000 + ".x", "1e9.x", "-1.x", "\u0661.x"])
def test_what_is_no_session_is_refused(cookie: str) -> None:
    assert not Tokens((Token(ONE),)).purposes_of_session(cookie, now=0)


def test_a_file_may_have_several_tokens_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# CI\n{ONE}\n\n  {OTHER}  \n")
    assert read_tokens(file) == Tokens((Token(ONE), Token(OTHER)))


@pytest.mark.parametrize(
    "text", ["", "# none\n", "short\n", "a token with spaces in it\n", "ü" * 20]
)
def test_a_file_without_a_good_token_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(PortalError, match="make one with: python -c"):
        read_tokens(file)


def test_the_environment_has_a_token_where_no_file_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLMS_PORTAL_TOKEN", f" {ONE}\n")
    assert read_tokens(None) == Tokens((Token(ONE),))
    monkeypatch.delenv("MLMS_PORTAL_TOKEN")
    assert not read_tokens(None)


def test_a_token_is_for_the_purposes_before_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"push:{ONE}\nread,run:{OTHER}\n")
    tokens = read_tokens(file)
    assert tokens.purposes_of(ONE) == {"push"}
    assert tokens.purposes_of(OTHER) == {"read", "run"}
    assert tokens.purposes_of(f"push:{ONE}") == set()
    cookie = tokens.sign_session(OTHER, now=1000)
    assert tokens.purposes_of_session(cookie, now=1000) == {"read", "run"}


@pytest.mark.parametrize("before", ["psuh", "", "read, run", "read,", "PUSH"])
def test_another_word_before_a_token_is_an_error(tmp_path: Path, before: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{before}:{ONE}\n")
    with pytest.raises(PortalError, match="may stand some of predict, push, read, run"):
        read_tokens(file)


@pytest.mark.parametrize("text", ["one\ntwo", "gehe\u00efm", "one\x00"])
def test_a_token_that_no_header_can_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(MlmsError, match="it is no token"):
        read_token(file)
    if "\x00" not in text:
        monkeypatch.setenv(TOKEN_VARIABLE, text)
        with pytest.raises(MlmsError, match="MLMS_PUSH_TOKEN: it is no token"):
            read_token(None)


def test_a_session_that_was_ended_is_void_and_others_are_not() -> None:
    tokens = Tokens((Token(ONE), Token(OTHER)))
    ended, other = tokens.sign_session(ONE, now=1000), tokens.sign_session(OTHER, now=1000)
    tokens.end_session(ended, now=1001)
    for cookie in (ended, f"0{ended}"):
        assert not tokens.purposes_of_session(cookie, now=1002)
    assert tokens.purposes_of_session(other, now=1002)
    tokens.end_session(other, now=1001 + SESSION_SECONDS)
    tokens.end_session("1.x", now=0)
    assert len(tokens.ended) == 1


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_token_that_others_may_choose_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "tokens"
    file.write_text(ONE)
    file.chmod(mode)
    with pytest.raises(PortalError, match="others may write it; chmod go-w"):
        read_tokens(file)
    with pytest.raises(MlmsError, match="others may write it; chmod go-w"):
        read_token(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_token_of_another_user_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(ONE)
    os.chown(file, 12345, 12345)
    with pytest.raises(PortalError, match="it belongs to another user"):
        read_tokens(file)
