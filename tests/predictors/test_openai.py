"""The predictor of servers that generate: on a server that speaks the protocol, right and wrong."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Generation, Load, Loaded, openai
from mlms_predictors._run import servers
from mlms_predictors._run.generation import Generated, generating
from mlms_predictors._run.interface import functions_of
from mlms_predictors._run.protocol import OF_TEXTS

from tests.support.project import HANG_GUARD
from tests.support.token_server import NAME, Server, serving, text_of, tokens_of

IDS = [3, 1, 4, 1, 5]
TEXT = "Once upon a time"
LIMIT = 8
TOKEN = "a-token-of-the-tests-71ab"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


class Client:
    """A model on a server, loaded by the predictor."""

    def __init__(self, url: str, prompt: Any = IDS, scores: bool = False, **options: Any) -> None:
        kind = "string" if isinstance(prompt, str) else "int64"
        generation = Generation("prompt", "logits", "limit", {}, scores=scores, prompt_type=kind)
        self.functions = generating(functions_of(openai), generation)
        self.prompt = np.array([prompt])
        options.setdefault("timeout", HANG_GUARD)
        request = Load({}, "cpu", None, options, False, {"endpoint": url}, generation)
        self.loaded: Loaded = self.functions.load(request)

    def answer(self, limit: int = LIMIT) -> Generated:
        arrays = {"prompt": self.prompt, "limit": np.array([limit])}
        output = self.functions.predict(self.loaded, arrays)
        assert isinstance(output, Generated)
        return output

    def tokens(self, limit: int = LIMIT) -> list[int]:
        found: list[int] = self.answer(limit)[0][0].tolist()
        return found


@contextlib.contextmanager
def client(server: Server, *args: Any, **options: Any) -> Iterator[Client]:
    made = Client(server.url, *args, **options)
    try:
        yield made
    finally:
        made.functions.close(made.loaded)


@pytest.mark.parametrize("prompt", [IDS, TEXT])
def test_ids_that_the_server_tells_are_the_tokens(server: Server, prompt: Any) -> None:
    with client(server, prompt, tokens="ids") as model:
        assert model.tokens() == tokens_of(prompt, LIMIT)
    assert server.seen == [
        (
            "/v1/completions",
            {
                "model": NAME,
                "prompt": prompt,
                "max_tokens": LIMIT,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_token_ids": True,
            },
        )
    ]
    facts = model.loaded.device_facts
    assert facts
    assert (facts["server"], facts["model"]) == ("tests 1.0", NAME)
    assert facts["tokens"].startswith("ids")


@pytest.mark.parametrize(
    ("tokens", "form"),
    [("logprobs", ""), ("logprobs", "parts of characters"), ("chunks", "")],
)
def test_tokens_without_ids_have_numbers_that_stand_for_their_texts(
    server: Server, tokens: str, form: str
) -> None:
    """Parts of characters, such as bytes, are all told as U+FFFD: another emoji was the same."""
    server.fault = form
    with client(server, tokens=tokens) as model:
        found, expected = model.tokens(), tokens_of(IDS, LIMIT)
    texts = [text_of(token) for token in expected]
    assert min(found) >= OF_TEXTS
    assert [found.index(each) for each in found] == [texts.index(each) for each in texts]
    assert np.array(found).astype(float).astype(int).tolist() == found


def test_ids_beside_log_probabilities_are_the_tokens(server: Server) -> None:
    """As llama.cpp tells them."""
    server.fault = "ids in logprobs"
    with client(server, tokens="logprobs") as model:
        assert model.tokens() == tokens_of(IDS, LIMIT)


def test_log_probabilities_are_told_where_the_manifest_wants_them(server: Server) -> None:
    for options in ({}, {"tokens": "ids"}):
        with client(server, scores=True, **options) as model:
            _, scores = model.answer()
        assert scores.tolist() == [[-token / 8 for token in tokens_of(IDS, LIMIT)]]
        assert server.seen[-1][1]["logprobs"] == 1


def test_a_text_is_a_message_of_a_chat_or_all_its_messages(server: Server) -> None:
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": TEXT}]
    for prompt, sent in ((TEXT, messages[1:]), (json.dumps(messages), messages)):
        for tokens in ("ids", "logprobs"):
            with client(server, prompt, scores=True, chat=True, tokens=tokens) as model:
                assert len(model.tokens()) == LIMIT
            path, request = server.seen[-1]
            assert path == "/v1/chat/completions"
            assert request["messages"] == sent
            assert request["logprobs"] is True


def test_each_token_has_the_time_at_which_its_chunk_came() -> None:
    with serving(first=0.05, each=0.02) as server, client(server, tokens="ids") as model:
        times = np.array(model.answer().times)
    assert np.diff(times).min() > 0.01
    assert len(times) == LIMIT


@pytest.mark.parametrize("tokens", ["ids", "logprobs", "chunks"])
@pytest.mark.parametrize(
    "form",
    [
        *("crlf", "cr", "pings", "empty", "split", "no blank", "several", "at once"),
        "closes behind it",
    ],
)
def test_a_stream_means_the_same_however_it_is_written(
    server: Server, form: str, tokens: str
) -> None:
    with client(server, tokens=tokens) as model:
        expected = model.tokens()
        server.fault = form
        if (form, tokens) == ("several", "chunks"):
            with pytest.raises(servers.ServerError, match="usage has 8 tokens, and 4 chunks with"):
                model.tokens()
        else:
            assert model.tokens() == expected
            assert model.tokens() == expected


FAULTS = {
    "500": r"was answered 500 Internal Server Error: out of memory \[31m",
    "whole answer": r"as a whole \(application/json\), not as a stream .*; ask one that streams",
    "hang": "gave no more of its answer in 0.3 s",
    "only pings": r"gave no token in 0.3 s, but something else \(3 tokens before\)",
    "close": "closed the connection within its answer",
    "cut": r"ends without \[DONE\] after 8 tokens: it was cut; .*'done: false'",
    "cut early": r"ends without \[DONE\] after 2 tokens: it was cut",
    "dropped": "usage has 8 tokens, and 7 tokens came; a chunk was lost",
    "usage": "usage has 9 tokens, and 8 tokens came",
    "bad json": 'a chunk of the answer is no JSON: \'{"id"',
    "no choices": "isn't of the protocol .KeyError: 'choices'",
    "choices": "several choices, and one was asked for",
    "no finish": "has no finish_reason after 8 tokens: its last chunk was lost",
    "abort": "ended by 'abort' after 8 tokens",
    "error": "broke its answer off: .*out of memory",
    "goes on": r"goes on behind its \[DONE\]",
    "another model": "is of model 'other', and 'tiny' was asked for",
    "not utf-8": "an event of the stream isn't UTF-8",
    "own limit": "its length after 4 tokens, and not after 8; the server has a limit of its own",
    "too many": "gave more than its limit of 8 tokens",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told_in_its_own_words_and_the_client_goes_on(
    server: Server, fault: str
) -> None:
    timeout = 0.3 if fault in ("hang", "only pings") else HANG_GUARD
    with client(server, tokens="ids", timeout=timeout) as model:
        expected = model.tokens()
        server.fault = fault
        with pytest.raises((servers.ServerError, ValueError), match=FAULTS[fault]):
            model.tokens()
        server.fault = ""
        assert model.tokens() == expected
    assert server.count == 3, "no request is sent again"


@pytest.mark.parametrize("fault", ["dropped", "several"])
def test_a_lost_chunk_is_told_without_usage_where_the_answer_has_its_length(
    server: Server, fault: str
) -> None:
    with client(server, usage=False) as model:
        assert len(model.tokens()) == LIMIT
        server.fault = fault
        with pytest.raises(servers.ServerError, match="ended by its length after . chunks with te"):
            model.tokens()
    assert "stream_options" not in server.seen[0][1]


def test_an_answer_may_end_by_a_token_that_has_no_text_and_lacks_no_other(server: Server) -> None:
    limit = len(tokens_of(IDS, 1000))
    assert limit < 1000
    with client(server) as model:
        assert len(model.tokens(1000)) == limit - 1
        server.fault = "usage"
        with pytest.raises(servers.ServerError, match=f"usage has {limit + 1} tokens"):
            model.tokens(1000)


def test_a_stream_that_never_has_done_is_taken_where_the_options_say_so(server: Server) -> None:
    server.fault = "cut"
    with client(server, done=False, tokens="ids") as model:
        assert model.tokens() == tokens_of(IDS, LIMIT)
        server.fault = "cut early"
        with pytest.raises(servers.ServerError, match="no finish_reason after 2 tokens"):
            model.tokens()


def test_answers_that_come_at_once_have_no_times_of_tokens(server: Server) -> None:
    """A proxy that buffers would have the best times between tokens; one late read is no such."""
    with client(server, tokens="ids") as model:
        server.fault = "at once"
        model.tokens()
        model.tokens()
        server.fault, server.each = "", 1e-3
        model.tokens()
        server.fault = "at once"
        model.tokens()
        model.tokens()
        with pytest.raises(
            servers.ServerError, match="8 tokens came in 1 parts, and have no times"
        ):
            model.tokens()


@pytest.mark.parametrize(("tokens", "name"), [("ids", "token_ids"), ("logprobs", "logprobs")])
def test_a_server_that_does_not_tell_what_tokens_are_is_an_error_that_says_what_to_write(
    server: Server, tokens: str, name: str
) -> None:
    with client(server, tokens=tokens) as model:
        model.loaded.model.decoder.model.fields.pop("return_token_ids", None)
        model.loaded.model.decoder.model.fields.pop("logprobs", None)
        with pytest.raises(servers.ServerError, match=f"tells no {name} .*write 'tokens: chunks'"):
            model.tokens()


def test_the_token_is_sent_and_in_no_text(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.token = TOKEN
    with pytest.raises(servers.ServerError, match="401 Unauth.*write .* into MLMS_ENDPOINT_TOKEN"):
        Client(server.url)
    monkeypatch.setenv("MLMS_ENDPOINT_TOKEN", TOKEN)
    with client(server) as model:
        model.tokens()
    cut = b"data: " + b"x" * 90 + TOKEN.encode() + b"\xff\n\n"
    with pytest.raises(servers.ServerError, match="isn't UTF-8") as raised:
        list(openai.arriving(iter([cut])))
    assert TOKEN[:9] not in str(raised.value)
    server.models = [TOKEN]
    with pytest.raises(servers.ServerError, match="no model 'x'") as raised:
        Client(server.url, model="x")
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        (IDS, {"model": "other"}, "no model 'other'; it has a, tiny:latest"),
        (IDS, {}, "the models a, tiny:latest; write 'options: {model: NAME}'"),
        (IDS, {"chat": True}, "a chat is a text; write 'element_type: string'"),
        (IDS, {"timeout": 0.0}, "timeout is 0.0; write the seconds"),
        (IDS, {"timeout": float("nan")}, "timeout is nan; write the seconds"),
        (IDS, {"timeout": float("inf")}, "timeout is inf; write the seconds"),
        (IDS, {"tokens": "words"}, "write one of ids, logprobs, chunks"),
        (IDS, {"request.stream": False}, "request.stream is set here; leave it out"),
        (IDS, {"scores": True, "tokens": "chunks"}, "chunks have no log-probabilities"),
    ],
)
def test_wrong_options_are_refused(
    server: Server, prompt: Any, options: dict[str, Any], message: str
) -> None:
    server.models = ["a", "tiny:latest"]
    with pytest.raises((ValueError, servers.ServerError), match=message):
        Client(server.url, prompt, **options)


def test_an_error_has_the_path_that_was_asked_for(server: Server) -> None:
    """Such as of an endpoint that ends in /v1, as clients of OpenAI have it."""
    with pytest.raises(servers.ServerError, match="GET /v1/v1/models was answered 404"):
        Client(server.url + "/v1")


def test_a_model_may_be_asked_for_without_its_tag_and_requests_have_further_fields(
    server: Server,
) -> None:
    server.models = ["a", "tiny:latest"]
    with client(server, model=NAME, **{"request.seed": 3, "request.temperature": 0.5}) as model:
        model.tokens()
    request = server.seen[-1][1]
    assert (request["model"], request["seed"], request["temperature"]) == (NAME, 3, 0.5)


def test_a_manifest_without_generate_and_one_with_its_own_end_are_refused() -> None:
    generation = Generation("prompt", "logits", "limit", {}, end=[2])
    for keys, message in ((None, "write 'generate:"), (generation, "leave 'end' out")):
        with pytest.raises(ValueError, match=message):
            openai.load(Load({}, "cpu", None, {}, generation=keys))


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8")), max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", ": ping", "event: x", "retry: 3", "data2: x"]),
    st.lists(st.integers(0, 200)),
)
def test_events_are_the_same_wherever_a_stream_is_cut(
    texts: list[str], end: str, other: str, cuts: list[int]
) -> None:
    lines = [f"{other}{end}data: {text}{end}{end}" for text in texts]
    stream = "".join(lines).encode()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(places)]
    found = [event for events in openai.arriving(iter(pieces)) for event in events]
    assert found == texts


def test_a_line_without_an_end_takes_bounded_memory() -> None:
    with pytest.raises(servers.ServerError, match="a line of the stream has more than"):
        list(openai.arriving(b"x" * (1 << 20) for _ in range(1000)))
