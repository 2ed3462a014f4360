"""Tests of the consistency between the sections of a manifest."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import ManifestError
from pytest_mlms.manifest import load, yaml12
from tests.support.small_manifest import DATASET, MODEL, error_of, small, write

TENSOR = {"outputs": [{"name": "y", "type": "tensor"}]}


def test_two_models_of_one_framework_are_an_error(tmp_path: Path) -> None:
    error = error_of(tmp_path, small(models=[MODEL, MODEL]))
    assert "models has 'onnxruntime' twice; keep one, or give each a variant" in error


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({"top1": {"min": 0.9}}, "top1 judges nothing; add a dataset"),
        ({"upgrade": {"top1": 0.01}}, "top1 judges nothing; add a dataset"),
        ({"upgrade": {"query_latency": 0.1}}, "query_latency judges nothing; add the scenario"),
        ({"peak_rate": {"min": "9 /s"}}, "peak_rate judges nothing; add the scenario peak"),
        ({"upgrade": {"peak_rate": 0.1}}, "peak_rate judges nothing; add the scenario peak"),
        ({"query_rate": {"min": "9 /s"}}, "query_rate judges nothing; add the scenario server"),
        ({"queue_delay": {"max": "9 s"}}, "queue_delay judges nothing; add the scenario server"),
        (
            {"device_memory": {"max": "9 GiB"}},
            "device_memory judges nothing; the CPU has none: add",
        ),
        (
            {"upgrade": {"device_memory": 0.1}},
            "device_memory judges nothing; the CPU has none: add",
        ),
        ({"upgrade": {"device_memory": "0 %"}}, "device_memory judges nothing; the CPU has none"),
        ({"device_memory": {"max": "0 B"}}, "device_memory judges nothing; the CPU has none: add"),
        ({"upgrade": {"top1": 0}}, "top1 judges nothing; add a dataset"),
        (
            {"latency_p50": {"max": "1 s", "batch_sizes": [3]}},
            "latency_p50 names batch_sizes that nothing is evaluated with; write some of 1",
        ),
        (
            {"throughput": [{"min": "1 /s"}, {"min": "2 /s", "frameworks": ["mxnet"]}]},
            "throughput names frameworks that nothing is evaluated with; write some of onnxruntime",
        ),
    ],
)
def test_a_limit_that_judges_no_case_is_an_error(
    tmp_path: Path, thresholds: dict[str, Any], message: str
) -> None:
    assert message in error_of(tmp_path, small(thresholds=thresholds))


SERVER = {"server": {"rate": "10 /s", "latency": "1 s"}}
LOADS = {"batch_sizes": [1, 64], "scenarios": ["single_stream", SERVER]}


@pytest.mark.parametrize(
    ("evaluate", "thresholds", "message"),
    [
        (
            LOADS,
            {"latency_p99": {"max": "1 s", "batch_sizes": [64], "scenarios": ["server"]}},
            (
                "latency_p99 judges nothing; no case that measures it has batch_sizes 64 and "
                "scenarios server (under load the batch size is 1): correct these"
            ),
        ),
        (
            LOADS,
            {"query_rate": {"min": "1 /s", "batch_sizes": [64]}},
            "query_rate judges nothing; no case that measures it has batch_sizes 64",
        ),
        (
            {"scenarios": [{"peak": {"latency": "1 s"}}]},
            {"latency_p50": {"max": "1 s"}},
            "latency_p50 judges nothing; no scenario here measures it: add another",
        ),
        (
            {"devices": ["cpu", "cuda"]},
            {"device_memory": {"max": "9 GiB", "devices": ["cpu"]}},
            "device_memory judges nothing; no case that measures it has devices cpu",
        ),
        (
            {"scenarios": [SERVER]},
            {"memory_growth": {"max": "1 B"}},
            "memory_growth judges nothing; no scenario here measures it: add another",
        ),
    ],
)
def test_a_limit_that_no_case_can_meet_is_an_error(
    tmp_path: Path, evaluate: dict[str, Any], thresholds: dict[str, Any], message: str
) -> None:
    assert message in error_of(tmp_path, small(evaluate=evaluate, thresholds=thresholds))


NAMED = {"name": "x", "type": "tensor", "element_type": "float32", "shape": ["batch", "tokens"]}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"a": {"tokens": 0}}, "evaluate.shapes.a.tokens: found 0; write greater than or equal to"),
        ({"a": {"token": 1, "tokens": 1}}, "no input has an axis 'token' in its shape; did you"),
        ({"a": {}}, "shape 'a' lacks the size of the axis 'tokens'; write 'tokens: …'"),
        ({"a b": {"tokens": 1}}, "'a b' is no word for ids; write letters, digits and '_'"),
        ({"offline": {"tokens": 1}}, "'offline' means another thing in ids; choose another name"),
        ("groups", "write 'dataset', or a name for each shape"),
        ("dataset", "there is no dataset whose shapes these could be; add one"),
        ({}, "nothing tells the size of the axis 'tokens'; write evaluate: {shapes:"),
    ],
)
def test_shapes_that_make_no_case_are_errors(tmp_path: Path, shapes: Any, message: str) -> None:
    evaluate = {"scenarios": ["offline"], "shapes": shapes}
    error = error_of(tmp_path, small(inputs=[NAMED], evaluate=evaluate))
    assert message in error
    assert error.partition(":")[0].isdigit()


def test_a_limit_names_shapes_that_there_are(tmp_path: Path) -> None:
    thresholds = {"latency_p50": {"max": "1 s", "shapes": ["long"]}}
    evaluate = {"shapes": {"short": {"tokens": 4}}}
    content = small(inputs=[NAMED], evaluate=evaluate, thresholds=thresholds)
    message = "latency_p50 names shapes that nothing is evaluated with; write some of short"
    assert message in error_of(tmp_path, content)


def test_a_limit_on_queries_of_calls_is_an_error(tmp_path: Path) -> None:
    scenarios = ["offline", {"server": {"rate": "9 /s", "latency": "1 s"}}]
    thresholds = {"query_rate": {"min": "9 /s", "scenarios": ["offline"]}}
    content = small(evaluate={"scenarios": scenarios}, thresholds=thresholds)
    message = "offline has no query_rate, which is of queries under load; remove it"
    assert message in error_of(tmp_path, content)


def test_a_file_that_has_two_digests_is_an_error(tmp_path: Path) -> None:
    outputs = []
    for number, digit in enumerate("aba"):
        step = {"detokenize": {"file": "t.json", "sha256": digit * 64}}
        outputs.append({"name": f"y{number}", "type": "text", "steps": [step]})
    error = error_of(tmp_path, small(task="translation", outputs=outputs))
    assert f"t.json has the digest {'a' * 64} in an earlier step; write that in both" in error
    assert error.count("earlier step") == 1


def test_accuracy_needs_a_classification(tmp_path: Path) -> None:
    content = small(dataset=DATASET, thresholds={"top1": {"min": 0.9}}, **TENSOR)
    assert "top1 judges nothing" in error_of(tmp_path, content)


@pytest.mark.parametrize(
    ("agreement", "others", "message"),
    [
        (
            {"reference": "mxnet"},
            {},
            "the reference 'mxnet' has no model here; write one of onnxruntime",
        ),
        ({"rtol": 1e-4}, {}, "'reference' is missing; write 'reference: …'"),
        ({"reference": "onnxruntime", "rtol": -1}, {}, "found -1; write a number, 0 or more"),
        ({"reference": "onnxruntime", "max_kl": 1}, {}, "unknown key 'max_kl'; "),
        (
            {"reference": "onnxruntime", "js": {"max": 1}},
            TENSOR,
            "js judges nothing; add an output of type classification",
        ),
        (
            {"reference": "onnxruntime", "top1": {"min": 0.9}},
            {"outputs": [{"name": "y", "type": "classification", "steps": ["class_numbers"]}]},
            "top1 judges nothing, as 'y' has numbers of classes; write 'atol: 0', or name",
        ),
        (
            {"reference": "onnxruntime", "devices": ["cuda"]},
            {},
            "agreement names devices that nothing is evaluated with",
        ),
        (
            [{"reference": "onnxruntime"}, {"reference": "onnxruntime"}],
            {},
            "onnxruntime on cpu has an agreement already; name other frameworks or devices",
        ),
    ],
)
def test_an_agreement_that_can_not_be_judged_is_an_error(
    tmp_path: Path, agreement: Any, others: dict[str, Any], message: str
) -> None:
    content = small(thresholds={"agreement": agreement}, **others)
    assert message in error_of(tmp_path, content)


def test_more_cases_than_anybody_runs_are_an_error(tmp_path: Path) -> None:
    devices = [f"cuda:{number}" for number in range(200)]
    content = small(evaluate={"devices": devices, "batch_sizes": [*range(1, 52)]})
    error = error_of(tmp_path, content)
    assert "evaluate makes 10,200 cases of performance; write fewer devices" in error


MANY = [f"cuda:{number}" for number in range(5000)]
TENSORS = [{"name": f"x{n}", "type": "tensor", "element_type": "float32"} for n in range(9000)]


@pytest.mark.parametrize(
    "content",
    [
        small(inputs=TENSORS),
        small(
            evaluate={"devices": MANY},
            thresholds={"top1": [{"min": 0.9, "devices": [name, name]} for name in MANY[:900]]},
        ),
        small(
            evaluate={"devices": MANY},
            thresholds={"agreement": [{"reference": "onnxruntime", "devices": MANY}] * 9},
        ),
        small(evaluate={"devices": MANY}, thresholds={"top1": [{"min": 1}] * 30_000}),
    ],
)
def test_long_lists_are_checked_in_little_more_than_the_time_to_read_them(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    path = write(tmp_path, json.dumps(content))
    began = time.process_time()
    yaml12.parse(path.read_text())
    read = time.process_time() - began
    with contextlib.suppress(ManifestError):
        load(path)
    assert time.process_time() - began < 20 * (read + 0.1)


@pytest.mark.parametrize(
    ("name", "steps", "message"),
    [
        ("auc", ["class_numbers"], "'y' has numbers of classes: name an output with scores"),
        ("top5", ["class_numbers"], "'y' has numbers of classes: name an output with scores"),
        ("top5", ["threshold"], "top5 judges nothing; 'y' has two classes: write top1"),
        ("ece", ["class_numbers"], "'y' has numbers of classes"),
    ],
)
def test_a_limit_on_scores_that_an_output_does_not_have_is_an_error(
    tmp_path: Path, name: str, steps: Any, message: str
) -> None:
    outputs = [{"name": "y", "type": "classification", "steps": steps}]
    bound = "max" if name == "ece" else "min"
    for limits in ({name: {bound: 0.5}}, {"upgrade": {name: 0.02}}):
        changes = {"outputs": outputs, "dataset": DATASET, "thresholds": limits}
        assert message in error_of(tmp_path, small(**changes))


STRINGS = {"name": "x", "type": "tensor", "element_type": "string"}


def test_an_input_of_strings_needs_a_dataset_and_has_no_steps(tmp_path: Path) -> None:
    inputs = [STRINGS]
    assert "there are no random texts; add a dataset" in error_of(
        tmp_path, small(inputs=inputs, **TENSOR)
    )
    write(tmp_path, small(inputs=inputs, dataset=DATASET))
    message = "an input of strings is a tensor of texts as they are in the dataset; write 'type: t"
    for wrong in ({"steps": [{"cast": {"to": "int64"}}]}, {"range": [0, 1]}):
        found = error_of(tmp_path, small(inputs=[{**STRINGS, **wrong}], dataset=DATASET))
        assert message in found
    found = error_of(
        tmp_path,
        small(inputs=[{**STRINGS, "from_output": "y", "shape": ["batch"]}], dataset=DATASET),
    )
    assert "a state is of numbers; leave out 'from_output'" in found


def quantised(*steps: Any, scale: float = 1 / 255, zero: int = -128) -> dict[str, Any]:
    """Return the text of a manifest whose pictures get these steps before they are quantised."""
    last = {"quantize": {"scale": scale, "zero_point": zero, "to": "int8"}}
    shape = {"name": "x", "type": "image", "element_type": "int8", "layout": "NHWC"}
    return small(inputs=[{**shape, "steps": ["decode", *steps, last]}])


@pytest.mark.parametrize(
    ("scale", "zero"), [(1 / 255, -128), (2 / 255, 0), (0.0186, -14), (0.4, 0)]
)
def test_pixels_that_a_quantize_would_cut_off_are_refused(
    tmp_path: Path, scale: float, zero: int
) -> None:
    resize = {"resize": {"size": [8, 8]}}
    found = error_of(tmp_path, quantised(resize, scale=scale, zero=zero))
    assert "pixels are 0 to 255, and int8 stands for" in found
    assert "write the 'normalize' of training before it" in found
    load(write(tmp_path, quantised({"normalize": {"mean": 0, "scale": 1}}, scale=scale, zero=zero)))
    load(write(tmp_path, quantised(resize, scale=1.0)))


PROMPT = {"name": "ids", "type": "tensor", "element_type": "int64", "shape": ["batch", 9]}
LIMIT = {"name": "limit", "type": "tensor", "element_type": "int64", "range": [8, 8]}
PAST = {
    "name": "past",
    "type": "tensor",
    "element_type": "float32",
    "shape": ["batch", 0, 4],
    "from_output": "present",
}
GENERATE = {"prompt": "ids", "mask": "mask"}
TOKENIZE = {"tokenize": {"file": "t.json", "sha256": "ab" * 32, "length": 9}}


def generator(**changes: Any) -> dict[str, Any]:
    """Return the manifest of a decoder with a past, with some sections changed."""
    sections = {
        "task": "text-generation",
        "inputs": [PROMPT, LIMIT, PAST],
        "outputs": [{"name": "tokens", "type": "tokens"}],
        "generate": GENERATE,
    }
    return small(**{**sections, **changes})


def test_a_decoder_with_a_past_is_a_manifest(tmp_path: Path) -> None:
    manifest = load(write(tmp_path, generator())).manifest
    assert manifest.generation is not None
    assert manifest.generation.states == {"past": "present"}
    assert not manifest.has_state


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generate": None}, "only a generation has a past of 0; write 'generate: …', or a size"),
        ({"generate": {"prompt": "id"}}, "'id' is no input with a prompt; did you mean 'ids'?"),
        ({"generate": {"prompt": "past"}}, "'past' is no input with a prompt"),
        ({"generate": {"prompt": "ids", "limit": "n"}}, "'n' is no input with a limit"),
        ({"generate": {"prompt": "ids", "mask": "ids"}}, "'ids' is made; remove it"),
        ({"generate": {"prompt": "ids", "end": [-1]}}, "greater than or equal to 0"),
        (
            {"inputs": [{**PROMPT, "element_type": "float32"}, LIMIT]},
            "'ids' is of whole numbers; write 'element_type: int64' in the input",
        ),
        (
            {
                "inputs": [{**PROMPT, "type": "text", "steps": [TOKENIZE]}, LIMIT],
                "dataset": DATASET,
            },
            "'tokenize' fills texts up, and no mask hides that; write 'type: tensor'",
        ),
        ({"generate": {"prompt": "limit"}}, "'limit' is the prompt; name another input"),
        (
            {"generate": {**GENERATE, "positions": "mask"}},
            "'mask' is the mask; name another, or leave it out",
        ),
        (
            {
                "inputs": [
                    {**PROMPT, "shape": ["batch", "length"]},
                    {**PROMPT, "name": "places", "shape": ["batch", "length"]},
                    LIMIT,
                ],
                "evaluate": {"shapes": {"short": {"length": 4}}},
            },
            "it would stay as long as the prompt; name it as 'mask' or 'positions'",
        ),
        (
            {"inputs": [PROMPT, LIMIT, PAST, {**PAST, "name": "other"}]},
            "'present' is the past of an earlier input, too; write its own output",
        ),
        (
            {"inputs": [PROMPT, {**LIMIT, "element_type": "int32"}]},
            "'limit' is of whole numbers",
        ),
        (
            {"inputs": [PROMPT, {**LIMIT, "range": [0, 8]}]},
            "an answer has one token at least; begin the range with 1",
        ),
        (
            {"inputs": [PROMPT, {key: LIMIT[key] for key in LIMIT if key != "range"}]},
            "nothing tells how many tokens; write 'range: [32, 32]', or add a dataset",
        ),
        (
            {"inputs": [{**PROMPT, "position": 0}, LIMIT]},
            "inputs of a generation have the model's names; remove it",
        ),
        (
            {"inputs": [PROMPT, LIMIT, {**PAST, "shape": ["batch", 4]}]},
            "a past is empty at first; write 0 for the axis that grows",
        ),
        (
            {"inputs": [PROMPT, LIMIT, {**PAST, "from_output": None}]},
            "an axis of 0 is that of a past; write 'from_output: …' beside it",
        ),
        (
            {"outputs": [{"name": "logits", "type": "tensor"}]},
            "a generation gives tokens and logprobs; write one of these",
        ),
        (
            {"outputs": [{"name": "logprobs", "type": "tensor"}]},
            "the answer is scored by the first output; write tokens before logprobs",
        ),
        ({"evaluate": {"batch_sizes": [1, 8]}}, "for one prompt; write batch_sizes: [1]"),
        ({"evaluate": {"scenarios": ["multi_stream"]}}, "for one prompt; remove multi_stream"),
        (
            {"evaluate": {"scenarios": [SERVER], "batcher": {"max_batch": 2}}},
            "for one prompt; leave the batcher out",
        ),
        (
            {"thresholds": {"batch_agreement": {"max": 1}}},
            "batch_agreement judges nothing; a generation is of one prompt",
        ),
    ],
)
def test_what_no_generation_can_be_is_an_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    found = {key: part for key, part in generator(**changes).items() if part is not None}
    assert message in error_of(tmp_path, found)


@pytest.mark.parametrize(
    "thresholds",
    [
        {"ttft": {"max": "1 s"}},
        {"tpot": {"max": "1 s"}},
        {"itl": {"max": "1 s"}},
        {"output_rate": {"min": "1 /s"}},
        {"upgrade": {"ttft": "5 %"}},
    ],
)
def test_a_limit_on_tokens_of_a_model_that_generates_none_is_an_error(
    tmp_path: Path, thresholds: dict[str, Any]
) -> None:
    assert "judges nothing; nothing is generated: write 'generate: …'" in error_of(
        tmp_path, small(thresholds=thresholds)
    )


def test_limits_on_tokens_judge_loads_but_no_peak(tmp_path: Path) -> None:
    limit = {"ttft": {"max": "1 s"}}
    load(write(tmp_path, generator(evaluate={"scenarios": [SERVER]}, thresholds=limit)))
    peak = {"peak": {"ttft": "1 s", "tpot": "100 ms"}}
    error = error_of(tmp_path, generator(evaluate={"scenarios": [peak]}, thresholds=limit))
    assert "ttft judges nothing; no scenario here measures it: add another" in error


@pytest.mark.parametrize("scenario", ["multi_stream", {"replay": {"arrivals": "a.csv"}}])
def test_goodput_needs_limits_that_queries_meet(tmp_path: Path, scenario: Any) -> None:
    (tmp_path / "a.csv").write_text("0\n1\n")
    limit = {"goodput": {"min": "1 /s"}}
    error = error_of(tmp_path, small(evaluate={"scenarios": [scenario]}, thresholds=limit))
    assert "goodput judges nothing; no scenario here measures it: add another" in error
    load(write(tmp_path, small(evaluate={"scenarios": [scenario, SERVER]}, thresholds=limit)))


def test_a_scenario_limits_no_tokens_of_a_model_that_generates_none(tmp_path: Path) -> None:
    for key in ("ttft", "tpot"):
        scenario = {"server": {"rate": "10 /s", key: "1 s"}}
        error = error_of(tmp_path, small(evaluate={"scenarios": [scenario]}))
        assert f"nothing is generated, and {key} is of tokens; write 'generate: …'" in error
