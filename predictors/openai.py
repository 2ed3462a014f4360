"""Servers that generate tokens by OpenAI's protocol: vLLM, SGLang, llama.cpp, transformers serve.

The stack says how the server is started, or where it runs: ``serve`` or ``endpoint``. The manifest
has ``generate``. ``graph`` is the file that the server is given as ``{graph}``, or that stands for
what it serves.

Versions: 1 is the protocol's; the server's own is told where it answers ``/version``.

Devices: cpu; where the server computes isn't known here.

Synchronises: a call is one POST of ``stream: true`` over HTTP/1.1, on a new connection, to the end
of the stream. A token's time is that at which its chunk has arrived and was read. Tokens of one
chunk, and chunks that arrive together, have one time but for microseconds.

Options: ``model`` is one of those that ``/v1/models`` lists, by default the only one. ``chat``
asks for an answer to a chat. ``tokens`` says what a token is: those of ``ids`` that the server
tells (``token_ids``), those that it tells ``logprobs`` of, or its ``chunks``, the default. Without
ids, numbers stand for their texts. ``usage: false`` doesn't ask how many tokens there were, and
``done: false`` doesn't wait for ``[DONE]``. ``timeout`` are the seconds to wait for the next token,
60 by default. ``request.NAME`` is a further field of each request.

Layer times: none, as a server's work is in other processes.

Threads: those of ``{threads}`` in the server's command, without which they aren't known.
"""

import contextlib
import hashlib
import itertools
import json
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy
from mlms_predictors import Arrays, Devices, Load, Loaded, Outputs, Tensor, Token, Versions
from mlms_predictors._run.checks import refuse_gpu, refuse_unknown
from mlms_predictors._run.options import within
from mlms_predictors._run.protocol import OF_TEXTS
from mlms_predictors._run.servers import (
    Connection,
    ModelReplacedError,
    Server,
    ServerError,
    close_server,
    json_object,
    open_server,
    quoted,
    takes_threads,
)

OPTIONS = {
    "model": "text",
    "chat": "bool",
    "tokens": ("ids", "logprobs", "chunks"),
    "usage": "bool",
    "done": "bool",
    "timeout": "float",
    "request.*": "any",
}
SERVES = {"ready": "/v1/models"}
_TIMEOUT = 60.0  # seconds
_LONGEST_TIMEOUT = 1e6
_OURS = ("model", "prompt", "messages", "max_tokens", "stream", "stream_options", "logprobs", "n")
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream"}
_LONGEST_LINE = 1 << 24  # bytes
_FEW = 4  # tokens of an answer, which may come together
_TOGETHER = 8  # tokens; a draft that is accepted is shorter
_MOST_BURSTS = 2  # answers in a row that came in bursts; a late client has one now and then
_FACTS = {
    "ids": "ids of tokens, as the server tells them",
    "logprobs": "tokens that the server tells log-probabilities of, by id or text",
    "chunks": "texts of chunks, each of which counts as a token",
}


class _Model(NamedTuple):
    """A model on a server, by a connection that one thread uses.

    ``fields`` are those that all requests have; ``told`` is what answers had until now, and
    ``bursts`` how many of the last ones came in bursts.
    """

    server: Server
    connection: Connection
    prompt: str
    name: str
    tokens: str
    scores: bool
    chat: bool
    done: bool
    timeout: float
    fields: Dict[str, Any]
    told: Dict[str, Any]
    bursts: List[int]


class _End:
    """The end of an answer as its chunks say it, and whether one had a text."""

    has_text = False
    reason = ""
    usage: Optional[int] = None
    done = False


def versions() -> Versions:
    """Return the version of the protocol, and that of numpy."""
    return {"openai": "1", "numpy": numpy.__version__}


def devices() -> Devices:
    """Return cpu: the server's devices are its own."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Start the server, or find it, and the model on it.

    Raises ServerError where it isn't there, and ValueError for wrong options.
    """
    refuse_gpu(request.device, "the client of a server")
    options = refuse_unknown(request.options, OPTIONS)
    generation = request.generation
    if generation is None:
        raise ValueError("its answers are generations; write 'generate: {prompt: ...}'")
    if generation.end:
        raise ValueError("a server knows what ends an answer; leave 'end' out of 'generate'")
    chat = options.get("chat", False)
    if chat and generation.prompt_type != "string":
        raise ValueError("a chat is a text; write 'element_type: string' in the prompt's input")
    timeout = options.get("timeout", _TIMEOUT)
    if not 0 < timeout <= _LONGEST_TIMEOUT:
        raise ValueError("timeout is %r; write the seconds to wait for a token" % timeout)
    tokens = options.get("tokens", "logprobs" if generation.scores else "chunks")
    fields = _fields(options, tokens, generation.scores)
    server = open_server(request, SERVES["ready"])
    asking = Connection(server, server.timeout)
    try:
        listed = _listed(json_object(asking.ask("GET", "/v1/models").body, "/v1/models"))
        name = _named(listed, options.get("model"))
        about = "%s %s" % (listed.get(name) or "unknown", _version(asking))
    except BaseException:
        close_server(server)
        raise
    finally:
        asking.close()
    return Loaded(
        model=_Model(
            server,
            Connection(server, timeout),
            generation.prompt,
            name,
            tokens,
            generation.scores,
            chat,
            options.get("done", True),
            timeout,
            dict(fields, model=name),
            server.told.setdefault(name, {}),
            [0],
        ),
        device="cpu",
        threads=request.threads if takes_threads(request) else None,
        inputs=[Tensor(generation.prompt, generation.prompt_type, ())],
        outputs=[Tensor(generation.logits, "float32", ())],
        device_facts={"server": quoted(about), "model": quoted(name), "tokens": _FACTS[tokens]},
        server=server.pid,
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Raise NotImplementedError: only ``generate`` asks the server."""
    raise NotImplementedError("openai.py generates only")


def generate(loaded: Loaded, arrays: Arrays, limit: int) -> Iterator[Token]:
    """Send a prompt, and yield the tokens of the answer as they arrive.

    Raises ServerError for an answer that isn't whole, or isn't of the protocol.
    """
    model = loaded.model
    body = json.dumps(_request(model, arrays[model.prompt], limit)).encode()
    path = "/v1/chat/completions" if model.chat else "/v1/completions"
    end = _End()
    count = arrivals = 0
    last = time.monotonic()
    with contextlib.closing(model.connection.stream(path, body, _HEADERS)) as pieces:
        for events in arriving(pieces):
            tokens = [token for event in events for token in _tokens(event, end, model)]
            yield from tokens
            count += len(tokens)
            now = time.monotonic()
            if tokens:
                arrivals += 1
                last = now
            elif now - last > model.timeout:
                text = "the server gave no token in %g s, but something else (%d tokens before)"
                raise ServerError(text % (model.timeout, count))
    _check_end(end, count, limit, model)
    in_bursts = count >= _FEW and arrivals <= max(1, count // _TOGETHER)
    model.bursts[0] = model.bursts[0] + 1 if in_bursts else 0
    if model.bursts[0] > _MOST_BURSTS:
        text = "%d tokens came in %d parts, and have no times; have what buffers them pass each on"
        raise ServerError(text % (count, arrivals))


def close(loaded: Loaded) -> None:
    """Leave the server; one that was started here ends with its last model."""
    loaded.model.connection.close()
    close_server(loaded.model.server)


def arriving(pieces: Iterator[bytes]) -> Iterator[List[str]]:
    """Yield the data of the events that each piece of a stream completes, [] for none.

    Source: WHATWG HTML, 9.2.6, "Interpreting an event stream". Raises ServerError for what isn't
    UTF-8, and for a line without an end.
    """
    rest = b""
    data: List[bytes] = []
    for piece in itertools.chain(pieces, [b"\n"]):  # which an end behind CR lacks
        lines = (rest + piece).splitlines(True)
        rest = b"" if not lines or lines[-1].endswith(b"\n") else lines.pop()
        if len(rest) > _LONGEST_LINE:
            raise ServerError("a line of the stream has more than %d bytes" % _LONGEST_LINE)
        events = []
        for line in lines:
            name, colon, value = line.rstrip(b"\r\n").partition(b":")
            if name or colon:
                if name == b"data":
                    data.append(value[1:] if value.startswith(b" ") else value)
            elif data:
                events.append(_text_of(b"\n".join(data)))
                data = []
        yield events


def _text_of(data):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ServerError("an event of the stream isn't UTF-8: %s" % quoted(repr(data))) from None


def _fields(options, tokens, scores):
    """Return the fields of all requests but those of a prompt; raises ValueError for wrong ones."""
    further = within("request.", options)
    for name in further:
        if name in _OURS:
            raise ValueError("request.%s is set here; leave it out" % name)
    if scores and tokens == "chunks":
        raise ValueError("chunks have no log-probabilities; write 'tokens: logprobs', or 'ids'")
    fields: Dict[str, Any] = {"stream": True, "temperature": 0}
    if options.get("usage", True):
        fields["stream_options"] = {"include_usage": True}
    if tokens == "ids":
        fields["return_token_ids"] = True
    if scores or tokens == "logprobs":
        fields["logprobs"] = True if options.get("chat") else 1
    return dict(fields, **further)


def _listed(content) -> Dict[str, str]:
    """Return who owns each model that a server lists."""
    try:
        return {model["id"]: str(model.get("owned_by") or "") for model in content["data"]}
    except (KeyError, TypeError, AttributeError):
        raise ServerError("the answer to /v1/models is no list of models") from None


def _named(listed, asked: Optional[str]) -> str:
    """Return the name of the model; raises ValueError where there is none, or no only one."""
    names = quoted(", ".join(sorted(listed)) or "none")
    if asked and (not listed or any(_is_of(name, asked) for name in listed)):
        return asked
    if asked:
        raise ServerError("the server has no model %r; it has %s" % (asked, names))
    if len(listed) != 1:
        raise ValueError("the server has the models %s; write 'options: {model: NAME}'" % names)
    return str(next(iter(listed)))


def _is_of(name: str, asked: str) -> bool:
    """Return whether a name is what was asked for, or that with a date, a tag or a revision."""
    return name == asked or name.startswith((asked + "-", asked + ":", asked + "@"))


def _version(asking):
    """Return the version that a server tells, "" for none."""
    try:
        return json_object(asking.ask("GET", "/version").body, "/version").get("version", "")
    except ServerError:
        return ""


def _request(model, prompt, limit):
    """Return a request: of ids (1 x n), or of one text."""
    request = dict(model.fields, max_tokens=limit)
    if len(prompt) != 1:
        raise ValueError("a generation takes one prompt, not %d" % len(prompt))
    given = prompt[0].tolist()
    return dict(request, messages=_messages(given)) if model.chat else dict(request, prompt=given)


def _messages(text):
    """Return a chat: the messages that a text is in JSON; any other text is one of the user's."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    is_chat = isinstance(found, list) and found and all(isinstance(each, dict) for each in found)
    return found if is_chat else [{"role": "user", "content": text}]


def _tokens(event: str, end: _End, model: _Model) -> List[Token]:
    """Return the tokens of an event, and note what it says of the answer's end."""
    if end.done:
        raise ServerError("the answer goes on behind its [DONE]")
    if event == "[DONE]":
        end.done = True
        return []
    try:
        chunk = json.loads(event)
    except (ValueError, RecursionError):
        raise ServerError("a chunk of the answer is no JSON: %r" % quoted(event)) from None
    try:
        if chunk.get("error"):
            raise ServerError("the server broke its answer off: %s" % quoted(str(chunk["error"])))
        _check_model(chunk.get("model"), model)
        if chunk.get("usage"):
            end.usage = int(chunk["usage"]["completion_tokens"])
        found: List[Token] = []
        for choice in chunk["choices"]:
            if choice.get("index", 0) != 0:
                raise ServerError("the answer has several choices, and one was asked for")
            text = _text(choice, model.chat)
            end.has_text = end.has_text or bool(text)
            found += _tokens_of(choice, text, model)
            end.reason = choice.get("finish_reason") or end.reason
        return found
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        text = "a chunk of the answer isn't of the protocol (%s: %s): %s"
        raise ServerError(text % (type(error).__name__, error, quoted(event))) from None


def _check_model(name, model):
    """Raise ServerError where another model answers than was asked for, or than before."""
    if not name:
        return
    if not _is_of(name, model.name):
        raise ServerError("the answer is of model %r, and %r was asked for" % (name, model.name))
    if model.told.setdefault("model", name) != name:
        text = "the answer is of model %r, and the one before was of %r: measure again"
        raise ModelReplacedError(text % (name, model.told["model"]))


def _tokens_of(choice, text, model) -> List[Token]:
    """Return the tokens of a chunk's choice, as the option ``tokens`` has them."""
    told, scores = _logprobs(choice)
    if model.tokens == "ids":
        told = choice.get("token_ids") or []
    elif model.tokens == "chunks":
        told = [text] if text else []
    ids = [_number(each, text) if isinstance(each, str) else each for each in told]
    if any(type(token) is not int or token < 0 for token in ids):
        raise ValueError("an id of a token")
    if not model.scores:
        return [(token, None) for token in ids]
    if len(scores) != len(ids):
        raise ServerError("a chunk has %d tokens and %d logprobs" % (len(ids), len(scores)))
    return list(zip(ids, [float(score) for score in scores]))


def _text(choice, chat) -> str:
    if not chat:
        return choice.get("text") or ""
    delta = choice.get("delta") or {}
    return delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""


def _logprobs(choice) -> Tuple[List[Any], List[float]]:
    """Return the tokens that log-probabilities are told of, by id where there is one, and these."""
    told = choice.get("logprobs") or {}
    if told.get("content") is not None:
        entries = told["content"]
        tokens = [entry.get("id", entry["token"]) for entry in entries]  # llama.cpp tells ids
        return tokens, [entry["logprob"] for entry in entries]
    return told.get("tokens") or [], told.get("token_logprobs") or []


def _number(token: str, text: str) -> int:
    """Return a number that stands for a token's text, which floats hold, too.

    All parts of characters are told as U+FFFD; the text of the chunk says which character it is.
    """
    said = token + "\0" + text if "\ufffd" in token else token
    digest = hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return OF_TEXTS | (int.from_bytes(digest, "little") >> 12)


def _check_end(end: _End, count: int, limit: int, model: _Model) -> None:
    """Raise ServerError for an answer that isn't whole."""
    came = "%d %s" % (count, "chunks with text" if model.tokens == "chunks" else "tokens")
    if model.done and not end.done:
        text = "the answer ends without [DONE] after %s: it was cut; of a server that never sends "
        raise ServerError((text + "it, write 'done: false' in the options") % came)
    if end.has_text and not count:
        name = "token_ids" if model.tokens == "ids" else "logprobs"
        text = "the server tells no %s of its tokens; write 'tokens: chunks' in the options"
        raise ServerError(text % name)
    if not end.reason:
        text = "the answer has no finish_reason after %s: its last chunk was lost"
        raise ServerError(text % came)
    if end.reason not in ("stop", "length"):
        raise ServerError("the answer ended by %r after %s" % (quoted(str(end.reason)), came))
    parts = (
        "a chunk was lost, or has several tokens or a part of one: see 'tokens' in docs/servers.md"
    )
    own = "the server has a limit of its own, such as its context; ask for fewer, or raise that"
    if end.usage is not None:
        hidden = end.usage - count  # 1: the token of the end, which has no text
        expected = model.told.setdefault("hidden", hidden) if end.reason == "stop" else 0
        if hidden != expected or hidden not in (0, 1):
            raise ServerError("usage has %d tokens, and %s came; %s" % (end.usage, came, parts))
    if end.reason == "length" and count != limit:
        text = "the answer ended by its length after %s, and not after %d; %s"
        raise ServerError(text % (came, limit, parts if end.usage is None else own))
