"""The predictor of servers, on a real one: the portal, which serves the digits by the Open Inference Protocol."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from pytest_mlms.measure.agent.load import LoadPlan, request_fields, schedule_arrays
from pytest_mlms.measure.agent.process import Refused
from tests.support.damaging_proxy import EVERY, proxy_of
from tests.support.frameworks import IMAGES, WRONG_IMAGES, Framework, assert_close, reference
from tests.support.portals import TOKEN, Portal, serving
from tests.support.project import DIGITS, HANG_GUARD, copy_digits, launch

pytest.importorskip("fastapi")

MODEL = {"model": "digits.yaml"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of the portal's, whose locks and cache are its own."""
    made = tmp_path_factory.mktemp("served")
    (made / "results").mkdir()
    copy_digits(made / "m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLMS_LOCKS", str(made / "locks"))
        patch.setenv("MLMS_CACHE", str(made / "cache"))
        yield made


@pytest.fixture(scope="module")
def portal(folder: Path) -> Iterator[Portal]:
    options = ("--allow-predict", f"--manifests={folder / 'm'}")
    with serving(folder / "results", *options, token=TOKEN) as made:
        yield made


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Framework]:
    """An agent that has the portal's token."""
    env = (("MLMS_ENDPOINT_TOKEN", TOKEN),)
    made = Framework(launch(env=env), "oip", tmp_path / "log")
    yield made
    made.agent.close()


def load(client: Framework, server: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Load the digits from a server, and return the facts of the reply."""
    fields = {
        "files": {"graph": str(DIGITS / "digits_cnn.onnx")},
        "device": "cpu",
        "threads": None,
        "options": {**MODEL, **options},
        "server": server,
    }
    return client.agent.request("load", fields).facts


def command(folder: Path) -> dict[str, Any]:
    """Return how a portal is started as a server."""
    words = [f"MLMS_LOCKS={folder / 'locks'}", f"MLMS_CACHE={folder / 'cache'}"]
    words += ["python", "-m", "pytest_mlms", "portal", "--allow-predict"]
    words += [f"--manifests={folder / 'm'}", f"--results={folder / 'results'}"]
    return {"command": ["env", *words, "--listen=127.0.0.1:{port}"], "ready": "", "timeout": 600}


def processes(client: Framework) -> list[psutil.Process]:
    """Return the processes of the agent's server."""
    return psutil.Process(client.agent.pid).children(recursive=True)


@pytest.mark.parametrize("binary", [True, False])
def test_an_endpoint_gives_the_outputs_of_its_model(
    portal: Portal, client: Framework, binary: bool
) -> None:
    loaded = load(client, {"endpoint": portal.origin}, binary=binary)
    assert loaded["device_facts"]["server"].startswith("pytest-mlms ")
    for images in (IMAGES, IMAGES[:1]):
        assert_close(client.predict(images), reference(images))
    for wrong in WRONG_IMAGES.values():
        with pytest.raises(Refused, match="the model takes"):
            client.predict(wrong)


def test_what_an_endpoint_does_not_tell_has_a_reason_and_no_figure(
    portal: Portal, client: Framework
) -> None:
    unmeasured = load(client, {"endpoint": portal.origin})["unmeasured"]
    assert {"peak_memory", "cpu_time", "start_time", "memory_growth"} < set(unmeasured)
    assert "not started here" in unmeasured["peak_memory"]
    with pytest.raises(Refused, match="memory isn't seen"):
        client.agent.request("usage", {"collect": False})


def test_the_server_is_what_is_measured_and_nothing_of_it_is_left(
    folder: Path, client: Framework
) -> None:
    facts = load(client, command(folder))
    assert set(facts["unmeasured"]) == {"import_memory"}
    assert_close(client.predict(IMAGES), reference(IMAGES))
    members = processes(client)
    assert len(members) > 1, "the portal's model has a process of its own"
    usage = client.agent.request("usage", {"collect": False}).facts
    own = psutil.Process(client.agent.pid).memory_info().rss
    assert usage["memory"] > own, "the server holds a framework, and its client none"
    assert usage["threads"] >= len(members)
    stop = {"seconds": 0.0, "least": 20, "longest": HANG_GUARD}
    fields = {"scenario": "single_stream", "stop": stop, "batches": 1}
    reply = client.agent.request("run", fields, [("image", IMAGES)])
    rss = sum(member.memory_info().rss for member in members)
    assert 0.3 * rss < reply.facts["peak_rss"] < 1.5 * rss
    cpu = next(array for name, array in reply.arrays.items() if name.endswith("cpu"))
    spent = sum(sum(member.cpu_times()[:2]) for member in members)
    assert 0 < cpu[-1] - cpu[0] <= spent + 0.1
    load(client, command(folder))
    assert not any(member.is_running() for member in members), "the next model ended it"
    members = processes(client)
    client.agent.close()
    assert not any(member.is_running() for member in members)


def test_copies_of_a_model_share_the_server(folder: Path, client: Framework) -> None:
    load(client, command(folder))
    client.predict()
    before = len(processes(client))
    samples = np.arange(40, dtype=np.int32) % len(IMAGES)
    plan = LoadPlan(samples, 60, np.arange(40, dtype=np.int64) * 1_000_000, instances=2)
    arrays = schedule_arrays(plan)
    for number in range(len(IMAGES)):
        arrays.append(("image", IMAGES[number : number + 1]))
    fields = request_fields(plan, len(IMAGES))
    facts = client.agent.request("load_run", fields, arrays, HANG_GUARD, lambda part: None).facts
    assert len(facts["instance_bytes"]) == 1
    assert facts["own_bytes"] == 0, "the schedule is the client's, and the memory the server's"
    assert len(processes(client)) == before


def test_a_server_that_crashes_is_told_by_its_end(folder: Path, client: Framework) -> None:
    load(client, command(folder))
    client.predict()
    processes(client)[0].send_signal(signal.SIGSEGV)
    with pytest.raises(Refused, match="the server was ended by SIGSEGV"):
        client.predict()
    with pytest.raises(Refused, match="the server was ended by SIGSEGV"):
        client.predict()


FAULTS = {
    "500": r"was answered 500 Internal Server Error: out of memory \[31m",
    "close": "the server closed the connection without an answer",
    "cut": "the server closed the connection within its answer",
    "another name": "the answer has no output 'logits'; it has digits",
    "short": "binary data",
    "no json": "the answer to infer is no JSON object",
    "hang": "the server gave no answer in 0.5 s",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told_in_its_own_words_and_the_client_goes_on(
    portal: Portal, client: Framework, fault: str
) -> None:
    with proxy_of(portal.address[1], fault) as proxy:
        load(client, {"endpoint": proxy.url}, timeout=0.5 if fault == "hang" else 60.0)
        for number in range(1, 2 * EVERY + 1):
            if number % EVERY:
                if fault != "hang":  # a busy machine may take that long
                    assert_close(client.predict(IMAGES), reference(IMAGES))
                else:
                    proxy.count += 1
                continue
            with pytest.raises(Refused, match=FAULTS[fault]):
                client.predict(IMAGES)
        assert proxy.count == 2 * EVERY, "no request is sent again"


def test_a_run_with_one_wrong_answer_has_no_result(portal: Portal, client: Framework) -> None:
    stop = {"seconds": 0.0, "least": 10, "longest": HANG_GUARD}
    with proxy_of(portal.address[1], "500") as proxy:
        load(client, {"endpoint": proxy.url})
        fields = {"scenario": "offline", "stop": stop, "batches": 1}
        with pytest.raises(Refused, match="was answered 500"):
            client.agent.request("run", fields, [("image", IMAGES)])


def test_the_token_goes_to_the_endpoint_and_into_no_text(
    portal: Portal, client: Framework, tmp_path: Path
) -> None:
    with proxy_of(portal.address[1], "") as proxy:
        load(client, {"endpoint": proxy.url})
        assert proxy.seen[-1]["Authorization"] == f"Bearer {TOKEN}"
        with pytest.raises(Refused, match="404") as raised:
            load(client, {"endpoint": proxy.url}, model=f"no-{TOKEN}")
    assert TOKEN not in str(raised.value)
    assert TOKEN not in (tmp_path / "log").read_text()


def test_without_its_token_the_error_says_that_it_is_refused(
    portal: Portal, tmp_path: Path
) -> None:
    client = Framework(launch(), "oip", tmp_path / "log")
    with pytest.raises(Refused, match="was answered 401"):
        load(client, {"endpoint": portal.origin})
    client.agent.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


WRONG_SERVERS: dict[str, tuple[dict[str, Any], str]] = {
    "no server": ({}, "there is no server; write into the stack"),
    "nothing there": ({"endpoint": f"http://127.0.0.1:{free_port()}"}, "nothing listens at http"),
    "no program": ({"command": ["no-such-program", "{port}"]}, "can't be started: no-such-program"),
    "ends": ({"command": ["false", "{port}"]}, "ended with status 1 before it was ready"),
    "never listens": (
        {"command": ["sleep", "3600", "{port}"], "timeout": 0.2},
        "not ready in 0.2 s .*nothing listens",
    ),
}


@pytest.mark.parametrize("name", WRONG_SERVERS)
def test_a_server_that_is_not_there_is_an_error_that_says_why(client: Framework, name: str) -> None:
    server, expected = WRONG_SERVERS[name]
    with pytest.raises(Refused, match=expected):
        load(client, server)
    assert not processes(client)


def test_a_port_that_another_server_has_taken_is_not_taken_for_ours(client: Framework) -> None:
    """The server that was started doesn't listen, and one that isn't its child answers instead."""
    taker = (
        "import os, socket, subprocess, sys, time\n"
        "port = int(sys.argv[1])\n"
        "if not os.fork():\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    from http.server import *\n"
        "    HTTPServer(('127.0.0.1', port), SimpleHTTPRequestHandler).serve_forever()\n"
        "time.sleep(3600)\n"
    )
    command = [sys.executable, "-c", taker, "{port}"]
    server: dict[str, Any] = {"command": command, "ready": "/", "timeout": 5.0}
    with pytest.raises(Refused, match="another program listens at its port"):
        load(client, server)


def test_a_port_that_is_shared_with_another_server_is_not_taken_for_ours(
    client: Framework,
) -> None:
    """Both listen by SO_REUSEPORT, and the kernel gives each some of the connections."""
    sharer = (
        "import os, socket, sys\n"
        "listens, told = os.pipe()\n"
        "other = os.fork() == 0\n"
        "if other and os.fork():\n"
        "    os._exit(0)\n"
        "other or os.read(listens, 1)\n"
        "listener = socket.socket()\n"
        "listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "listener.bind(('127.0.0.1', int(sys.argv[1])))\n"
        "listener.listen()\n"
        "os.write(told, b'1')\n"
        "while True:\n"
        "    connection = listener.accept()[0]\n"
        "    connection.recv(65536)\n"
        "    connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}')\n"
    )
    command = [sys.executable, "-c", sharer, "{port}"]
    server: dict[str, Any] = {"command": command, "ready": "/", "timeout": 3.0}
    with pytest.raises(Refused, match="another program listens at its port"):
        load(client, server)


FORKING = """
import json, os, sys, time
from http.server import *
image = {"name": "image", "datatype": "FP32", "shape": [-1]}
logits = {**image, "name": "logits"}
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self, body=json.dumps({"inputs": [image], "outputs": [logits]}).encode()):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        has, told = os.pipe()
        if not os.fork():
            held = b"x" * (8 << 20)
            os.write(told, b"1")
            time.sleep(3600)
        os.read(has, 1)
        output = {**logits, "shape": [1], "data": [1.0]}
        self.do_GET(json.dumps({"outputs": [output]}).encode())
    def log_message(self, *args):
        pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_processes_that_a_server_leaves_behind_are_a_growth_of_its_memory(
    client: Framework,
) -> None:
    """Those that began with a call, too."""
    words = [sys.executable, "-c", FORKING, "{port}"]
    load(client, {"command": words, "ready": "", "timeout": HANG_GUARD})
    stop = {"seconds": 0.0, "least": 4, "longest": HANG_GUARD}
    fields = {"scenario": "offline", "stop": stop, "batches": 1}
    run = client.agent.request("run", fields, [("image", IMAGES)])
    assert run.facts["grown"] >= 4 * (8 << 20)


def test_a_server_whose_first_process_ends_is_not_measured_by_what_is_left(
    client: Framework,
) -> None:
    """Others would answer, and nobody would see their memory."""
    words = [sys.executable, "-c", "import os\nos.fork() and os.wait()\n" + FORKING, "{port}"]
    load(client, {"command": words, "ready": "", "timeout": HANG_GUARD})
    client.predict(IMAGES)
    first = psutil.Process(client.agent.pid).children()[0]
    first.terminate()
    while first.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    client.predict(IMAGES)
    with pytest.raises(Refused, match="the server's process has ended, and must stay in the fore"):
        client.agent.request("usage", {"collect": False})


LOADING = """
import json, sys
from http.server import *
late, status = int(sys.argv[2]), int(sys.argv[3])
tensors = [{"name": "image", "datatype": "FP32", "shape": [-1]}]
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        global late
        late -= self.path.endswith("digits.yaml/ready")
        self.send_response(status if late > 0 and "/models/" in self.path else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"inputs": tensors, "outputs": tensors}).encode())
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_model_that_is_ready_after_its_server_is_awaited_as_long_as_that(
    client: Framework,
) -> None:
    """Its start is what is measured, whichever of both a server loads first."""

    def loading(late: int, status: int, timeout: float) -> dict[str, Any]:
        words = [sys.executable, "-c", LOADING, "{port}", str(late), str(status)]
        return {"command": words, "ready": "", "timeout": timeout}

    assert load(client, loading(5, 503, HANG_GUARD))["waited"] == 0.0
    with pytest.raises(Refused, match=r"not ready in 0.5 s .*digits.yaml/ready was answered 503"):
        load(client, loading(1 << 30, 503, 0.5))
    with pytest.raises(Refused, match="digits.yaml/ready was answered 404"):
        load(client, loading(1 << 30, 404, HANG_GUARD))


def load_and_predict(client: Framework, server: dict[str, Any], options: dict[str, Any]) -> None:
    load(client, server, **options)
    client.predict()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"model": ""}, "the name of the model isn't said"),
        ({"timeout": -1.0}, "timeout is -1.0; write the seconds"),
        ({"binary": "yes"}, "binary is 'yes'; write true or false"),
        ({"outputs": "digits float32[?,10]"}, "no output 'digits'"),
    ],
)
def test_wrong_options_are_refused(
    portal: Portal, client: Framework, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(Refused, match=expected):
        load_and_predict(client, {"endpoint": portal.origin}, options)


def test_an_idle_connection_is_not_used_again(portal: Portal, client: Framework) -> None:
    """Servers close such at any time, which isn't an answer that was lost."""
    with proxy_of(portal.address[1], "") as proxy:
        load(client, {"endpoint": proxy.url})
        client.predict()
        os.kill(client.agent.pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(client.agent.pid, signal.SIGCONT)
        assert_close(client.predict(IMAGES), reference(IMAGES))
