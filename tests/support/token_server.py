"""A server of OpenAI's protocol whose tokens follow from the prompt, and what may be wrong with one.

In a process of its own it is a server that a stack starts: ``python token_server.py PORT FACTS``, where
FACTS are those of ``Server`` as JSON.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME = "tiny"
VOCABULARY = 97
_STALLED = 50  # tokens


def tokens_of(prompt: Any, limit: int) -> list[int]:
    """Return the ids of an answer; it ends before the limit with id 0, which has no text."""
    state = sum(prompt if isinstance(prompt, list) else str(prompt).encode()) + 1
    found: list[int] = []
    while len(found) < limit and 0 not in found:
        state = state * 75 % 65537
        found.append(state % VOCABULARY)
    return found


def text_of(token: int) -> str:
    return f" ž{token}" if token else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any

    def do_GET(self) -> None:
        models = [{"id": name, "owned_by": "tests"} for name in self.server.models]
        found = {"/v1/models": {"data": models}, "/version": {"version": "1.0"}}.get(self.path)
        wanted = f"Bearer {self.server.token}"
        if self.server.token and self.headers.get("Authorization") != wanted:
            self._whole(401, {"error": {"message": f"wrong token, not {self.server.token}"}})
        else:
            self._whole(200 if found else 404, found or {"detail": "Not Found"})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        server.count += 1
        server.seen.append((self.path, request))
        fault = server.fault if server.count % server.every == 0 else ""
        if fault == "500":
            self._whole(500, {"error": {"message": "out of\n memory \u001b[31m"}})
        elif fault == "whole answer":
            self._whole(200, {"choices": [{"text": "all", "finish_reason": "stop"}]})
        else:
            self._stream(request, fault)

    def _stream(self, request: dict[str, Any], fault: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, piece in enumerate(pieces_of(request, fault)):
            time.sleep(self.server.seconds(number))
            if fault in ("close", "hang", "only pings") and number == 3:
                break
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        while fault == "only pings":
            time.sleep(0.05)
            self.wfile.write(b"8\r\n: ping\n\n\r\n")
        if fault == "hang":
            time.sleep(3600)
        if fault == "close":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")
            self.close_connection = fault == "closes behind it"

    def _whole(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def pieces_of(request: dict[str, Any], fault: str) -> list[bytes]:
    """Return the stream of an answer, as the pieces that are written one after the other."""
    events = [json.dumps(chunk, ensure_ascii=False) for chunk in _chunks(request, fault)]
    changed = {
        "cut": events,
        "cut early": events[:2],
        "bad json": [events[0], events[1][:-3], *events[2:]],
        "error": [*events[:2], '{"error": {"message": "out of memory"}}'],
        "goes on": [*events, "[DONE]", events[0]],
    }
    events = changed.get(fault, [*events, "[DONE]"])
    end = {"crlf": "\r\n", "cr": "\r"}.get(fault, "\n")
    ping = f": ping{end}{end}" if fault == "pings" else ""
    field = "data:" if fault == "no blank" else "data: "
    pieces = [f"{ping}{field}{event}{end}{end}".encode() for event in events]
    if fault == "not utf-8":
        pieces[1] = pieces[1].replace("ž".encode(), b"\xff")
    if fault == "at once":
        return [b"".join(pieces)]
    if fault == "split":
        whole = b"".join(pieces)
        return [whole[at : at + 7] for at in range(0, len(whole), 7)]
    return pieces


def _chunks(request: dict[str, Any], fault: str) -> list[dict[str, Any]]:
    """Return the chunks of an answer: its tokens, its end, and how many there are where that is asked for."""
    prompt = request.get("prompt") or request["messages"][-1]["content"]
    limit = request["max_tokens"] + {"too many": 1, "own limit": -4}.get(fault, 0)
    ids = tokens_of(prompt, limit)
    shown = ids[:-1] if fault == "dropped" else ids
    size = 2 if fault == "several" else 1
    chunks = [_chunk(request, shown[at : at + size]) for at in range(0, len(shown), size)]
    reason = "stop" if ids[-1] == 0 else "length"
    chunks.append(_chunk(request, [], {"no finish": None, "abort": "abort"}.get(fault, reason)))
    if fault == "empty":
        chunks = [each for chunk in chunks for each in (_chunk(request, []), chunk)]
    if fault == "another model":
        chunks[1]["model"] = "other"
    if fault == "choices":
        chunks[1]["choices"].append({"index": 1, "text": "x"})
    if fault == "no choices":
        del chunks[1]["choices"]
    if fault == "ids in logprobs":
        for chunk, token in zip(chunks, ids, strict=False):
            told = {"id": token, "token": text_of(token), "logprob": 0.0}
            chunk["choices"][0]["logprobs"] = {"content": [told]}
    if fault == "parts of characters":
        for chunk in chunks:
            told = chunk["choices"][0]["logprobs"]
            told["tokens"] = ["\ufffd" for _ in told["tokens"]]
    if request.get("stream_options"):
        usage = {"completion_tokens": len(ids) + (fault == "usage")}
        chunks.append({"model": NAME, "choices": [], "usage": usage})
    return chunks


def _chunk(request: dict[str, Any], ids: list[int], reason: str | None = None) -> dict[str, Any]:
    """Return a chunk with tokens, as either API has it."""
    texts = [text_of(token) for token in ids]
    scores = [-token / 8 for token in ids]
    choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "logprobs": None}
    is_chat = "messages" in request
    if is_chat:
        choice["delta"] = {"content": "".join(texts)} if ids else {}
    else:
        choice["text"] = "".join(texts)
    if request.get("return_token_ids"):
        choice["token_ids"] = ids
    if request.get("logprobs") and is_chat:
        told = [{"token": t, "logprob": s} for t, s in zip(texts, scores, strict=True)]
        choice["logprobs"] = {"content": told}
    elif request.get("logprobs"):
        choice["logprobs"] = {"tokens": texts, "token_logprobs": scores}
    return {"id": "cmpl-1", "object": "text_completion", "model": NAME, "choices": [choice]}


class Server(ThreadingHTTPServer):
    """A server of the model ``tiny``, whose tokens take some seconds; ``fault`` is in each ``every``-th answer."""

    daemon_threads = True

    def __init__(self, port: int = 0, **facts: Any) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.first = facts.get("first", 0.0)
        self.each = facts.get("each", 1e-3)
        self.stall = facts.get("stall", 0.0)
        self.fault: str = facts.get("fault", "")
        self.every: int = facts.get("every", 1)
        self.models: list[str] = [NAME]
        self.token = ""
        self.count = self.written = 0
        self.seen: list[tuple[str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing of clients that left."""

    def seconds(self, number: int) -> float:
        """Return the time before a piece of an answer."""
        self.written += 1
        stall = self.stall if self.written % _STALLED == 0 else 0.0
        return float(self.each if number else self.first) + stall


@contextlib.contextmanager
def serving(**facts: Any) -> Iterator[Server]:
    """Run a server in a thread."""
    with Server(**facts) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


if __name__ == "__main__":
    Server(int(sys.argv[1]), **json.loads(sys.argv[2])).serve_forever()
