"""Generations: tokens of a decoder with a past, their times, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Generation, Load, Loaded, onnxruntime
from mlms_predictors._run.generation import (
    Generated,
    TokenClock,
    at_first_token,
    generating,
    greedy,
)
from mlms_predictors._run.interface import Functions, functions_of
from mlms_predictors._run.worker import Worker

from tests.support.decoders import PASTS, WIDTH, expected_tokens, write_decoder
from tests.support.project import ROOT

PROMPT = [3, 1, 4, 1, 5]
GENERATION = Generation(
    "input_ids", "logits", "limit", PASTS, "attention_mask", "position_ids", scores=True
)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("decoder") / "decoder.onnx")


def opened(path: Path, **changes: Any) -> tuple[Functions, Loaded]:
    generation = GENERATION._replace(**changes)
    functions = generating(functions_of(onnxruntime), generation)
    return functions, functions.load(
        Load({"graph": str(path)}, "cpu", 1, {}, generation=generation)
    )


def batch(prompt: list[int], limit: int) -> dict[str, Any]:
    pasts = {name: np.zeros((1, 0, WIDTH), np.float32) for name in PASTS}
    return {"input_ids": np.array([prompt]), "limit": np.array([limit]), **pasts}


@pytest.mark.parametrize("prompt", [PROMPT, [7], list(range(30))])
def test_tokens_with_a_past_are_those_of_all_tokens_anew(decoder: Path, prompt: list[int]) -> None:
    functions, loaded = opened(decoder)
    tokens, scores = functions.predict(loaded, batch(prompt, 12))
    expected, logarithms = expected_tokens(decoder, prompt, 12)
    assert tokens.tolist() == [expected]
    np.testing.assert_allclose(scores[0], logarithms, atol=1e-4)


def test_a_bound_call_begins_anew_each_time(decoder: Path) -> None:
    functions, loaded = opened(decoder)
    call = functions.bind(loaded, batch(PROMPT, 8))
    assert call()[0].tolist() == call()[0].tolist()


def test_an_answer_ends_with_a_token_of_the_end(decoder: Path) -> None:
    expected, _ = expected_tokens(decoder, PROMPT, 12)
    functions, loaded = opened(decoder, end=[expected[4]])
    (tokens,) = functions.predict(loaded, batch(PROMPT, 12))[0]
    assert tokens.tolist() == expected[: expected.index(expected[4]) + 1]


def test_tokens_have_times_in_their_order_and_the_first_is_told_at_once(decoder: Path) -> None:
    functions, loaded = opened(decoder)
    told: list[int] = []
    at_first_token(loaded, lambda: told.append(len(told)))
    output = functions.predict(loaded, batch(PROMPT, 9))
    assert isinstance(output, Generated)
    assert len(output.times) == len(output.waits) == 9
    assert output.times == sorted(output.times)
    assert output.waits == sorted(output.waits)
    assert told == [0]


def test_the_rows_of_a_clock_are_those_of_the_calls_since_the_last_ones() -> None:
    clock = TokenClock()
    outputs = []
    for times in ([1.0, 2.0], [3.0], [4.0, 5.0, 6.0]):
        output = Generated([times])
        output.times, output.waits = times, [0.5] * len(times)
        outputs.append(output)
    call = clock.timed(iter(outputs).__next__)
    for _ in outputs:
        call()
    rows = {name: list(values) for name, values in clock.rows(skip=1)}
    assert rows == {"tokens": [1, 3], "token": [3, 4, 5, 6], "token_wait": [0.5] * 4}
    assert [len(values) for _, values in clock.rows()] == [0, 0, 0]


def test_the_times_of_tokens_are_no_growth_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSWERING_FIRST", "0")
    monkeypatch.setenv("ANSWERING_EACH", "0")
    worker = Worker(str(ROOT / "tests" / "support" / "predictors" / "answering.py"))
    worker.hello({}, [])
    generation = Generation("prompt", "logits", "limit", {"past": "present"})
    request = {"files": {"graph": "m.bin"}, "device": "cpu", "threads": 1}
    worker.load({**request, "generation": generation._asdict()}, [])
    past = np.zeros((1, 0), np.float32)
    arrays = [("prompt", np.arange(20)[None]), ("limit", np.array([32])), ("past", past)]
    run = {"batches": 1, "scenario": "offline"}
    worker.run({**run, "stop": {"seconds": 0, "least": 9, "longest": 60}}, arrays)
    ran = worker.run({**run, "stop": {"seconds": 0, "least": 4000, "longest": 60}}, arrays)
    assert ran.fields["grown"] / 4000 < 100, "bytes a call; the times of its tokens take 700"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": "ids"}, "the model takes no 'ids'; name one of input_ids, "),
        ({"logits": "scores"}, "the model gives no 'scores'; name one of logits, "),
        ({"mask": "mask"}, "the model takes no 'mask'"),
        ({"states": {"past_key_0": "present"}}, "the model gives no 'present'"),
    ],
)
def test_names_that_the_model_has_not_are_refused(
    decoder: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        opened(decoder, **changes)


@pytest.mark.parametrize(("prompt", "limit"), [([], 3), (PROMPT, 0), (PROMPT, -1)])
def test_a_generation_of_nothing_is_refused(decoder: Path, prompt: list[int], limit: int) -> None:
    functions, loaded = opened(decoder)
    arrays = batch(prompt, limit)
    arrays["input_ids"] = arrays["input_ids"].astype(np.int64)
    with pytest.raises(ValueError, match="a prompt and a limit of at least one token"):
        functions.predict(loaded, arrays)


def test_padding_of_a_prompt_is_refused(decoder: Path) -> None:
    functions, loaded = opened(decoder)
    with pytest.raises(ValueError, match="a prompt has the id -1; leave out what is padding"):
        functions.predict(loaded, batch([-1, *PROMPT], 3))


def test_a_generation_that_fails_leaves_no_open_file(decoder: Path) -> None:
    functions, loaded = opened(decoder)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(Exception, match="indices element out of data bounds"):
            functions.predict(loaded, batch([999], 3))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def row(*logits: float) -> Any:
    return np.array([[logits]], np.float32)


NAN = float("nan")


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (row(1, NAN, 2), "NaN or infinity after 2 tokens"),
        (row(1, np.inf, 2), "NaN or infinity after 2 tokens"),
        (row(-np.inf, -np.inf, -np.inf), "NaN or infinity after 2 tokens"),
        (row(1, 2, 3)[0], r"output 'logits' is \(1, 3\) for 2 tokens"),
        (row(1, 2, 3)[None], r"is \(1, 1, 1, 3\) for 2 tokens"),
        (np.zeros((2, 1, 3), np.float32), r"is \(2, 1, 3\) for 2 tokens"),
        (np.zeros((1, 3, 2), np.float32), r"is \(1, 3, 2\) for 2 tokens"),
        (row(1, 2), "no token has the id 2 of 'end'; output 'logits' has a vocabulary of 2"),
    ],
)
def test_logits_that_say_no_token_are_refused(logits: Any, message: str) -> None:
    generation = Generation("ids", "logits", "limit", {"past": "present"}, end=[2])
    tokens = greedy(lambda given: (logits, {}), {"ids": np.array([[1, 2]])}, generation, 3)
    with pytest.raises(ValueError, match=message):
        list(tokens)


def test_tokens_that_are_suppressed_are_not_chosen_and_of_equal_ones_the_first_is() -> None:
    generation = Generation("ids", "logits", "limit", {"past": "present"}, scores=True)
    logits = row(-np.inf, 2, 2)
    found = greedy(lambda given: (logits, {}), {"ids": np.array([[1, 2]])}, generation, 2)
    tokens, scores = zip(*found, strict=True)
    assert tokens == (1, 1)
    assert scores == pytest.approx([np.log(0.5)] * 2)


def test_a_decoder_without_a_past_is_refused() -> None:
    generation = Generation("ids", "logits", "limit", {})
    with pytest.raises(ValueError, match="without a past a token is all that is seen"):
        list(greedy(lambda given: (row(1), {}), {"ids": np.array([[1]])}, generation, 2))


def test_several_prompts_are_refused(decoder: Path) -> None:
    functions, loaded = opened(decoder)
    arrays = batch(PROMPT, 3)
    arrays["input_ids"] = np.repeat(arrays["input_ids"], 2, axis=0)
    with pytest.raises(ValueError, match="takes one prompt, not 2"):
        functions.predict(loaded, arrays)


def test_a_cuda_graph_is_refused(decoder: Path) -> None:
    request = Load({"graph": str(decoder)}, "cpu", 1, {"cuda_graph": True}, generation=GENERATION)
    with pytest.raises(ValueError, match="cuda_graph"):
        generating(functions_of(onnxruntime), GENERATION).load(request)


def test_a_predictor_without_generate_is_refused() -> None:
    functions = functions_of(onnxruntime)._replace(generate=None)
    with pytest.raises(NotImplementedError, match=r"onnxruntime\.py has no 'generate'"):
        generating(functions, GENERATION)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "gave no token"),
        ([(1, -0.5)] * 4, "gave more than its limit of 3 tokens"),
        ([(1, -0.5), (1, None)], "tells no log-probabilities; leave 'logprobs' out"),
    ],
)
def test_a_generator_that_does_not_do_as_it_is_told_is_refused(
    decoder: Path, tokens: list[Any], message: str
) -> None:
    def generate(loaded: Loaded, arrays: Any, limit: int) -> Iterator[Any]:
        yield from tokens

    functions = generating(functions_of(onnxruntime)._replace(generate=generate), GENERATION)
    loaded = functions.load(Load({"graph": str(decoder)}, "cpu", 1, {}, generation=GENERATION))
    with pytest.raises(ValueError, match=message):
        functions.predict(loaded, batch(PROMPT, 3))


def test_a_model_that_is_loaded_after_a_decoder_is_called_as_it_is(decoder: Path) -> None:
    worker = Worker(str(ROOT / "predictors" / "onnxruntime.py"))
    worker.hello({}, [])
    request = {"files": {"graph": str(decoder)}, "device": "cpu", "threads": 1}
    reply = worker.load({**request, "generation": GENERATION._asdict()}, [])
    assert [tensor.name for tensor in reply.fields["outputs"]] == ["tokens", "logprobs"]
    stop = {"seconds": 0, "least": 3, "longest": 60}
    arrays = list(batch(PROMPT, 4).items())
    ran = worker.run({"batches": 1, "scenario": "offline", "stop": stop}, arrays)
    assert dict(ran.arrays)["time:tokens"].tolist() == [4, 4, 4]
    worker.outputs({"batch": 0}, [])
    ran = worker.run({"scenario": "offline", "stop": stop}, [])
    assert dict(ran.arrays)["time:tokens"].tolist() == [4, 4, 4], "others are not timed"
    reply = worker.load(request, [])
    assert "logits" in [tensor.name for tensor in reply.fields["outputs"]]


def test_the_wait_of_a_token_is_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that was lost between both readings counted as a wait before the token."""
    module = import_module("mlms_predictors._run.generation")
    clock = [0.0]

    class Late:
        """A reading during which the thread waits for 4 ms."""

        def __init__(self, of_others: bool) -> None:
            self.waited = 0.0

        def read(self) -> float:
            clock[0] += 0.004
            self.waited += 0.004
            return self.waited

        def close(self) -> None:
            """Hold nothing."""

    def generate(decoder: Any, arrays: Any, limit: int) -> Iterator[tuple[int, None]]:
        for token in range(limit):
            clock[0] += 0.001
            yield token, None

    monkeypatch.setattr(module, "QueueWait", Late)
    generation = Generation("ids", "logits", "limit", {})
    arrays = {"ids": np.ones((1, 2), np.int64), "limit": np.array([3])}
    generator = module._Generator(None, generation, [])
    found = module._generated(generate, generator, arrays, clock=lambda: clock[0])
    begun = 0.004  # after the reading at the beginning
    assert np.allclose(np.array(found.times) - begun - found.waits, [0.001, 0.002, 0.003])
