"""The Open Inference Protocol v2: clients that others wrote, over HTTP and gRPC, unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.exceptions import HTTPException

from pytest_mlms.api import open_model
from pytest_mlms.predict.warm import WarmLimits, WarmModels
from pytest_mlms.show.portal.manifests import Manifests
from pytest_mlms.show.portal.predictions import Predictions
from tests.support.portals import Portal, start
from tests.support.project import DIGITS, HANG_GUARD
from tests.support.served_models import write_faulty_model, write_manifests
from tests.support.waiting import wait_until

# The extra test has them: that they can't be imported is no reason to skip what they show.
http, grpc, utils = (import_module(f"tritonclient.{name}") for name in ("http", "grpc", "utils"))

DATA = np.load(DIGITS / "digits_test.npz")
TOKEN = "a-token-of-the-tests-3f9c"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("portal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLMS_LOCKS", str(folder / "locks"))
        patch.setenv("MLMS_CACHE", str(folder / "cache"))
        (folder / "results").mkdir()
        write_manifests(folder / "m")
        yield folder


@pytest.fixture(scope="module")
def addresses(folder: Path) -> Iterator[tuple[Portal, str]]:
    """A portal, and the address of its gRPC."""
    options = ("--allow-predict", f"--manifests={folder / 'm'}", "--grpc=0", "--timeout=5")
    process = start(folder / "results", *options, token=TOKEN)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines[0].startswith("mlms portal: gRPC on "), process.stderr
        yield Portal(process, lines[1].split()[2], TOKEN), lines[0].split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=HANG_GUARD)


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, addresses: tuple[Portal, str]) -> Iterator[Any]:
    """A client of tritonclient, with the module that it is of."""
    portal, address = addresses
    module = http if request.param == "http" else grpc
    url = portal.origin.removeprefix("http://") if module is http else address
    with contextlib.closing(module.InferenceServerClient(url)) as made:
        yield module, made


def batch(count: int) -> Any:
    """Return pictures as the model takes them."""
    return (DATA["image"][:count].reshape(count, 1, 8, 8) / 16).astype(np.float32)


def infer(client: Any, arrays: dict[str, Any], model: str, **options: Any) -> Any:
    module, made = client
    inputs = []
    for name, array in arrays.items():
        one = module.InferInput(name, array.shape, utils.np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array)
        inputs.append(one)
    return made.infer(model, inputs, headers=dict(HEADERS), **options)


def test_the_server_and_its_models_are_described(client: Any) -> None:
    _, made = client
    assert made.is_server_live(headers=HEADERS)
    assert made.is_server_ready(headers=HEADERS)
    assert made.is_model_ready("digits.yaml", headers=HEADERS)
    assert made.is_model_ready("digits.yaml", "here", headers=HEADERS)
    assert not made.is_model_ready("nothing.yaml", headers=HEADERS)
    json_of = {"as_json": True} if client[0] is grpc else {}
    server = made.get_server_metadata(headers=HEADERS, **json_of)
    assert (server["name"], "binary_tensor_data" in server["extensions"]) == ("pytest-mlms", True)
    model = made.get_model_metadata("digits.yaml", headers=HEADERS, **json_of)
    assert model["versions"][0] == "here"
    (taken,), (given,) = model["inputs"], model["outputs"]
    assert (taken["name"], taken["datatype"]) == ("image", "FP32")
    assert [int(size) for size in taken["shape"]] == [-1, 1, 8, 8]
    assert (given["name"], [int(size) for size in given["shape"]]) == ("logits", [-1, 10])


def test_outputs_are_the_model_s_own_bit_for_bit(client: Any, folder: Path) -> None:
    with open_model(folder / "m" / "digits.yaml") as model:
        for count in (1, 7):
            expected = model.infer({"image": batch(count)})["logits"]
            found = infer(client, {"image": batch(count)}, "digits.yaml")
            assert found.as_numpy("logits").tobytes() == expected.tobytes()
    numbers = {name: np.array([[1, 2, 3]], np.float32) for name in "ab"}
    found = infer(client, numbers, "sums.yaml", request_id="7")
    assert found.as_numpy("logits").tolist() == [[2, 4, 6]]
    assert found.get_response()["id"] == "7" if client[0] is http else "7"


def test_an_output_may_be_named_and_be_json(client: Any) -> None:
    module, _ = client
    names = [module.InferRequestedOutput("logits")]
    if module is http:
        names = [module.InferRequestedOutput("logits", binary_data=False)]
    found = infer(client, {"image": batch(2)}, "digits.yaml", outputs=names, model_version="here")
    assert found.as_numpy("logits").shape == (2, 10)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("digits.yaml", {"image": batch(1)[:, :, :4]}, "input 'image' is float32 1 x 1 x 4 x 8"),
    ("digits.yaml", {"image": batch(1).astype(np.float64)}, "input 'image' is float64"),
    ("digits.yaml", {"picture": batch(1)}, "the inputs are picture; the model takes image"),
    ("digits.yaml", {}, "the inputs are none; the model takes image"),
    ("digits.yaml", {"é" * 9000: batch(1)}, "the inputs are éééé"),
    ("nothing.yaml", {"image": batch(1)}, "there is no manifest 'nothing.yaml'"),
]


@pytest.mark.parametrize(("model", "arrays", "problem"), WRONG)
def test_what_the_model_does_not_take_is_told(
    client: Any, model: str, arrays: dict[str, Any], problem: str
) -> None:
    with pytest.raises(utils.InferenceServerException, match=problem):
        infer(client, arrays, model)


def test_a_client_without_the_token_is_refused(client: Any) -> None:
    _, made = client
    with pytest.raises(utils.InferenceServerException, match="token"):
        made.get_server_metadata()


def test_json_alone_is_enough_and_errors_are_the_protocol_s(addresses: Any) -> None:
    portal, _ = addresses
    one = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}
    answer = portal.post("/v2/models/digits.yaml/infer", json.dumps({"inputs": [one]}))
    (logits,) = answer.json["outputs"]
    assert (answer.status, logits["datatype"], logits["shape"]) == (200, "FP32", [1, 10])
    for path, body, status in (
        ("/v2/models/digits.yaml/infer", b"[", 400),
        ("/v2/models/digits.yaml/versions/none/infer", b"{}", 404),
        ("/v2/models/nothing.yaml/infer", b"{}", 404),
        ("/v2/models/digits.yaml", b"{}", 404),
    ):
        answer = portal.post(path, body)
        assert (answer.status, list(answer.json)) == (status, ["error"]), answer.text
    assert portal.get("/v2/nothing").status == 404
    assert portal.get("/v2/models/digits.yaml/versions/").status == 404
    sent = {"Inference_Header_Content_Length": "x"}
    assert portal.post("/v2/models/digits.yaml/infer", b"{}", **sent).status == 400


def test_a_message_that_is_none_and_one_that_does_not_come_are_errors(addresses: Any) -> None:
    import grpc as transport

    _, address = addresses
    path = "/inference.GRPCInferenceService/ModelInfer"
    metadata = tuple(HEADERS.items())
    with transport.insecure_channel(address) as channel:
        call = channel.unary_unary(path, None, None)
        with pytest.raises(transport.RpcError) as caught:
            call(b"\xff" * 9, metadata=metadata, timeout=HANG_GUARD)
        assert caught.value.code() == transport.StatusCode.INVALID_ARGUMENT
        with pytest.raises(transport.RpcError) as caught:
            call(b"\0" * (33 << 20), metadata=metadata, timeout=HANG_GUARD)
        assert caught.value.code() == transport.StatusCode.RESOURCE_EXHAUSTED
        stream = channel.stream_unary(path, None, None)
        for messages in ([], [b"", b""]):
            with pytest.raises(transport.RpcError) as caught:
                stream(iter(messages), metadata=metadata, timeout=HANG_GUARD)
            assert caught.value.code() == transport.StatusCode.INVALID_ARGUMENT
        with pytest.raises(transport.RpcError) as caught:
            stream(_never(), metadata=metadata, timeout=HANG_GUARD)
        assert caught.value.code() == transport.StatusCode.CANCELLED


def _never() -> Iterator[bytes]:
    """Yield nothing for as long as the portal waits."""
    import threading

    threading.Event().wait(30)
    yield from ()


def test_a_message_counts_among_those_that_are_held_before_its_stream_ends(folder: Path) -> None:
    only = import_module("pytest_mlms.show.portal.inference_grpc")._only

    async def endless() -> AsyncIterator[bytes]:
        yield b"12345"
        await asyncio.Event().wait()

    async def read() -> None:
        models = WarmModels(folder, may_create=False, limits=WarmLimits())
        predictions = Predictions(Manifests(folder / "m"), folder / "m", models, 4)
        with predictions.holding() as hold:
            await asyncio.wait_for(only(endless(), hold), HANG_GUARD)

    with pytest.raises(HTTPException, match="too many inputs are on their way"):
        asyncio.run(read())


def test_a_call_that_has_begun_is_answered_when_the_portal_ends(folder: Path) -> None:
    write_faulty_model(folder / "m", "slow", seconds=1.5)
    options = ("--allow-predict", f"--manifests={folder / 'm'}", "--grpc=0")
    process = start(folder / "results", *options, token=TOKEN)
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    process.stdout.readline()
    with grpc.InferenceServerClient(address) as client:
        assert client.is_model_ready("slow.yaml", headers=HEADERS)
        one = grpc.InferInput("image", [1, 1, 8, 8], "FP32")
        one.set_data_from_numpy(batch(1))
        found: list[Any] = []
        client.async_infer(
            "slow.yaml", [one], lambda result, error: found.append(error), headers=dict(HEADERS)
        )
        time.sleep(0.7)
        process.terminate()
        process.communicate(timeout=HANG_GUARD)
        assert found == [None], found[0].status()


def test_a_file_of_stacks_that_becomes_wrong_is_told_without_its_folder(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    write_manifests(tmp_path / "m")
    options = ("--allow-predict", f"--manifests={tmp_path / 'm'}", "--grpc=0")
    process = start(tmp_path / "results", *options)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    portal = Portal(process, lines[1].split()[2], TOKEN)
    assert portal.get("/v2/models/digits.yaml").status == 200
    (tmp_path / "m" / "stacks.yaml").write_text("a: [1")
    wait_until(lambda: portal.get("/v2/models/digits.yaml").status != 200)
    answer, page = portal.get("/v2/models/digits.yaml"), portal.get("/predict?manifest=digits.yaml")
    assert answer.json["error"].startswith("stacks.yaml:2: is not YAML")
    assert (answer.status, page.status, str(tmp_path) in page.text) == (500, 500, False)
    with (
        grpc.InferenceServerClient(lines[0].split()[-1]) as client,
        pytest.raises(utils.InferenceServerException, match="INTERNAL. stacks.yaml:2: is not YAML"),
    ):
        client.get_model_metadata("digits.yaml", headers=HEADERS)
    process.terminate()
    assert process.communicate(timeout=HANG_GUARD)[1] == ""
