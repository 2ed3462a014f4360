"""Generation: a model that takes a prompt and gives one token after the other, as one call.

``generating`` makes of a predictor that has ``generate`` one whose calls are whole generations, so
that scenarios, turns and loads are those of any model. Its inputs are the prompt, the largest
number of tokens, and the states that are empty at first; its outputs are the tokens and, where they
are asked for, their log-probabilities. Each call has the time of each token beside its outputs.
"""

import contextlib
import functools
import math
import sys
import time
from array import array
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from .interface import Arrays, Functions, Outputs, Token, missing_function
from .process import QueueWait
from .protocol import Generation, Load, Loaded, Tensor

OUTPUT = "tokens"
SCORES = "logprobs"
"""The names of the outputs of a generation."""
ANSWER = "mlms:answer"
"""The name of tokens that an answer is held to, among the arrays of ``Functions.inner``."""

_BETWEEN_READINGS = 5e-4  # seconds
_LEAST_FILL = 1e4  # of a mask, which is no logit
Step = Callable[[Arrays], Tuple[Any, Arrays]]
"""Runs a decoder once: returns the logits, 1 x tokens x vocabulary, and the states by input."""


class Generated(List[Any]):
    """The outputs of a generation, with the time of each token by time.perf_counter in seconds.

    ``waits`` are the seconds that the thread had waited for a core by then, since the call began.
    They are read after 0.5 ms or more.
    """

    times: List[float]
    waits: List[float]


class Choice(NamedTuple):
    """A token of an answer that is held to given ones, beside the likeliest one at its place.

    ``score`` and ``best_score`` are their log-probabilities. ``size`` is that of the best logit or
    the usual one, whichever is larger, of the logits' own type: what masks fill in is neither. Of
    an offset that all logits have it is an eighth: at most twice what the best is above the usual.
    """

    token: int
    score: float
    best: int
    best_score: float
    size: Any


class _Generator(NamedTuple):
    """A loaded decoder; ``first_token`` has the function that is called at each first token."""

    decoder: Loaded
    generation: Generation
    first_token: List[Callable[[], None]]


class TokenClock:
    """The times of the tokens of calls, from one reading of ``rows`` to the next.

    It keeps no outputs, and frees no times, but puts others in their place. So its memory is known,
    and hides none that the model takes.
    """

    def __init__(self) -> None:
        self._calls: List[Tuple[Any, Any]] = []
        self._count = 0

    @property
    def nbytes(self) -> int:
        """The bytes that the times take, which grow with the calls."""
        return sum(sys.getsizeof(part) for call in self._calls for part in (call, *call))

    def timed(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return the call with its tokens' times noted each time."""
        return functools.partial(self._run, call)

    def rows(self, skip: int = 0) -> List[Tuple[str, Any]]:
        """Return the number of tokens of each call but ``skip`` first, their times and waits."""
        calls = self._calls[skip : self._count]
        self._count = 0
        return [
            ("tokens", array("d", [len(times) for times, _ in calls])),
            ("token", array("d", [time for times, _ in calls for time in times])),
            ("token_wait", array("d", [wait for _, waits in calls for wait in waits])),
        ]

    def _run(self, call):
        output = call()
        times = array("d", output.times), array("d", output.waits)
        self._calls[self._count : self._count + 1] = [times]
        self._count += 1
        return output


def generating(functions: Functions, generation: Generation) -> Functions:
    """Return the functions of a predictor whose calls are generations.

    Raises NotImplementedError where the predictor can't generate.
    """
    name = functions.load.__module__.rpartition(".")[2]
    if functions.generate is None:
        raise NotImplementedError("%s.py has no 'generate'; leave 'generate' out" % name)
    generate = functions.generate

    def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
        return _generated(generate, loaded.model, arrays)

    return functions._replace(
        load=functools.partial(_load, functions.load),
        predict=predict,
        bind=lambda loaded, arrays: functools.partial(predict, loaded, arrays),
        profiles=missing_function(name, "layers"),
        inner=functools.partial(_held, generate),
        structure=missing_function(name, "structure"),
        takes_cupti=lambda loaded: functions.takes_cupti(loaded.model.decoder),
        close=lambda loaded: functions.close(loaded.model.decoder),
        device_seconds=None,
        event_times=None,
        device_memory=lambda loaded: functions.device_memory(loaded.model.decoder),
        has_layers=False,
    )


def at_first_token(loaded: Loaded, call: Callable[[], None]) -> None:
    """Have a function called at the first token of each generation; others have no tokens."""
    if isinstance(loaded.model, _Generator):
        loaded.model.first_token[:] = [call]


def _load(load, request: Load) -> Loaded:
    """Load a decoder; return it with the signature of its generations."""
    decoder = load(request)
    generation = request.generation
    assert generation is not None, "who generates has a request with one"
    made = [name for name in (generation.mask, generation.positions) if name]
    _check_names("takes", decoder.inputs, [generation.prompt, *generation.states, *made])
    _check_names("gives", decoder.outputs, [generation.logits, *generation.states.values()])
    inputs = [tensor for tensor in decoder.inputs if tensor.name not in made]
    outputs = [Tensor(OUTPUT, "int64", (None, None))]
    if generation.scores:
        outputs.append(Tensor(SCORES, "float32", (None, None)))
    return decoder._replace(
        model=_Generator(decoder, generation, []),
        inputs=[*inputs, Tensor(generation.limit, "int64", (None,))],
        outputs=outputs,
        default_output="",
    )


def _check_names(verb, tensors, names):
    """Raise ValueError where a decoder lacks an input or output that a generation names."""
    known = [tensor.name for tensor in tensors]
    for name in names:
        if name not in known:
            text = "the model %s no %r; name one of %s in 'generate' or 'from_output'"
            raise ValueError(text % (verb, name, ", ".join(known)))


def _generated(generate, generator: _Generator, arrays: Arrays, clock=time.perf_counter):
    """Generate until the limit or the end; return the tokens with their times."""
    import numpy

    given = dict(arrays)
    limit = int(given.pop(generator.generation.limit).item())
    prompt = given[generator.generation.prompt]
    if limit < 1 or prompt.size < 1:
        raise ValueError("a generation takes a prompt and a limit of at least one token each")
    if prompt.dtype.kind in "iu" and prompt.min() < 0:  # which models take for the last ids
        raise ValueError("a prompt has the id %d; leave out what is padding" % prompt.min())
    times = []
    waits = []
    tokens: List[Token] = []
    with contextlib.closing(QueueWait(of_others=True)) as queue:
        begin = waited = queue.read()
        reading = clock() + _BETWEEN_READINGS
        for token in generate(generator.decoder, given, limit):
            now = clock()
            if len(tokens) == limit:
                raise ValueError("the generation gave more than its limit of %d tokens" % limit)
            if now >= reading:
                waited = queue.read()
                now = clock()  # a wait that is read is within the time
                reading = now + _BETWEEN_READINGS
            times.append(now)
            waits.append(waited - begin)
            tokens.append(token)
            if len(times) == 1:
                for call in generator.first_token:
                    call()
    if not tokens:
        raise ValueError("the generation gave no token; it gives one at least")
    found = Generated([numpy.array([[token for token, _ in tokens]], "i8")])
    if generator.generation.scores:
        scores = [score for _, score in tokens]
        if None in scores:
            raise ValueError("the generation tells no log-probabilities; leave %r out" % SCORES)
        found.append(numpy.array([scores], "f4"))
    found.times = times
    found.waits = waits
    return found


def _held(generate, loaded, arrays):
    """Generate with the tokens of an answer given, and go on behind them; return each choice.

    Raises NotImplementedError where no answer is given, or the predictor knows only its own.
    """
    import numpy

    given = dict(arrays)
    if ANSWER not in given:
        raise NotImplementedError("a generation shows no inner outputs")
    limit = int(given.pop(loaded.model.generation.limit).item())
    found = list(generate(loaded.model.decoder, given, limit))
    if not found or not isinstance(found[0], Choice):
        raise NotImplementedError("it doesn't tell how likely the tokens of another answer are")
    columns = dict(zip(Choice._fields, zip(*found)))
    return [(name, numpy.array(values)) for name, values in columns.items()]


def greedy(step: Step, arrays: Arrays, generation: Generation, limit: int) -> Iterator[Any]:
    """Yield the likeliest token after what there is, until the limit or a token of the end.

    ``arrays`` are the prompt, 1 x n, and the states of the beginning. A mask of ones is as long as
    all tokens so far, and positions count them. Where they have an ANSWER, its tokens are taken,
    and each is a ``Choice``. Raises ValueError for logits that say no token.
    """
    import numpy

    if not generation.states:
        raise ValueError("without a past a token is all that is seen; add inputs of 'from_output'")
    given: Dict[str, Any] = dict(arrays)
    answer = given.pop(ANSWER, None)
    tokens = given[generation.prompt]
    if tokens.shape[:1] != (1,):
        raise ValueError("a generation takes one prompt, not %d" % len(tokens))
    length = 0
    for place in range(limit):
        first, length = length, length + tokens.shape[1]
        if generation.mask:
            given[generation.mask] = numpy.ones((1, length), tokens.dtype)
        if generation.positions:
            given[generation.positions] = numpy.arange(first, length, dtype=tokens.dtype)[None]
        logits, states = step(given)
        row = _last_row(logits, tokens.shape[1], generation)
        token = int(row.argmax())
        if not math.isfinite(row[token]):
            raise ValueError("the logits have NaN or infinity after %d tokens" % length)
        if answer is None:
            yield token, _score(row, token) if generation.scores else None
        else:
            choice = _choice(row, token, answer[0, place : place + 1])
            yield choice
            token = choice.token
        if token in generation.end:
            return
        given.update(states)
        tokens = given[generation.prompt] = numpy.array([[token]], tokens.dtype)


def _last_row(logits, count, generation):
    """Return the logits of the last of ``count`` new tokens, which may have a row each."""
    if logits.ndim != 3 or len(logits) != 1 or logits.shape[1] not in (1, count):
        text = "output %r is %s for %d tokens; name one of 1 x tokens x vocabulary in 'generate'"
        raise ValueError(text % (generation.logits, logits.shape, count))
    row = logits[0, -1]
    if max(generation.end, default=0) >= len(row):
        text = "no token has the id %d of 'end'; output %r has a vocabulary of %d"
        raise ValueError(text % (max(generation.end), generation.logits, len(row)))
    return row


def _choice(row, best, given):
    """Return the given token beside the best one; an answer that is over has none."""
    import numpy

    token = int(given[0]) if len(given) else best
    if not 0 <= token < len(row):
        raise ValueError("there is no token %d in a vocabulary of %d" % (token, len(row)))
    sizes = numpy.abs(row.astype("f8"))
    logits = row[sizes < _LEAST_FILL].astype("f8")
    size = min(sizes[best], _LEAST_FILL)
    if len(logits):
        size = max(size, numpy.median(numpy.abs(logits)))
        above = min(float(row[best]), _LEAST_FILL) - numpy.median(logits)
        size = min(size, max(2 * above, size / 8))
    return Choice(token, _score(row, token), best, _score(row, best), row.dtype.type(size))


def _score(logits, token):
    """Return the logarithm of a token's share of the softmax."""
    import numpy

    row = logits.astype("f8")
    return float(row[token] - row.max() - numpy.log(numpy.exp(row - row.max()).sum()))
