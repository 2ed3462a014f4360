"""The capabilities of this host, and of hosts that hooks describe."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.host.capabilities import (
    Capabilities,
    frameworks,
    gather,
    labels,
    missing_here,
    selected_alone,
    uuid_of,
)
from pytest_mlms.provide.host.locks import own_cores
from tests.support.driver import SLICED, Driver

GPUS = """
driver 580.1
gpu GPU-aa
name NVIDIA A
memory 1073741824
gpu GPU-bb
name NVIDIA B
memory 2147483648
"""


@pytest.fixture
def config(tmp_path: Path, driver: Driver) -> Any:
    """The config of a session on a host with two GPUs; ``announced`` are the devices of a hook."""
    driver.says(GPUS)
    announced: list[dict[str, Any]] = []
    hook = SimpleNamespace(pytest_mlms_devices=lambda config: [announced, None])
    return SimpleNamespace(stash=pytest.Stash(), hook=hook, announced=announced, cache=tmp_path)


def offer(config: Any) -> Capabilities:
    return gather(config, config.cache, {})


def test_capabilities_are_plain_values(config: Any) -> None:
    host = offer(config)
    assert json.loads(json.dumps(host)) == host
    assert host["cores"] == len(own_cores())


def test_capabilities_are_gathered_once(config: Any) -> None:
    assert offer(config) is offer(config)


def test_the_devices_are_the_cpu_and_the_visible_gpus(config: Any) -> None:
    cpu, first, second = offer(config)["devices"]
    assert cpu["name"] == "cpu"
    assert len(cpu["locks"]) == len(own_cores())
    assert first["name"] == "cuda:0"
    assert second == {
        "name": "cuda:1",
        "kind": "NVIDIA B",
        "uuid": "GPU-bb",
        "memory": 2 << 30,
        "driver": "580.1",
        "locks": ["GPU-bb"],
    }


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ({"kind": "NPU"}, r"{'kind': 'NPU'}; it must be a dict with a 'name'"),
        ("npu:0", "'npu:0'; it must be a dict with a 'name'"),
        (
            {"name": "npu:0", "memory": "64 GiB"},
            "its memory must be a number of bytes, as in 64 <<",
        ),
        ({"name": "npu:0", "uuid": 7}, "its uuid must be a text"),
    ],
)
def test_what_a_hook_announces_is_refused_once_where_it_is_no_device(
    config: Any, device: Any, problem: str
) -> None:
    config.announced.append(device)
    with pytest.raises(MlmsError, match=f"^pytest_mlms_devices announced .*{problem}"):
        offer(config)
    assert [device["name"] for device in offer(config)["devices"]] == ["cpu", "cuda:0", "cuda:1"]


@pytest.mark.parametrize("returned", [5, True, {"name": "npu:0"}, "npu:0"])
def test_what_a_hook_returns_is_refused_where_it_is_no_list(config: Any, returned: Any) -> None:
    config.hook.pytest_mlms_devices = lambda config: [returned]
    with pytest.raises(MlmsError, match="; return a list of dicts"):
        offer(config)


def test_keys_of_a_device_that_nobody_reads_are_left_out_as_no_worker_can_send_any_value(
    config: Any,
) -> None:
    config.announced.append({"name": np.str_("npu:0"), "folder": Path("/"), "locks": None, 3: 4})
    *_, device = offer(config)["devices"]
    locks = [f"{offer(config)['host']} npu:0"]
    assert device == {"name": "npu:0", "kind": "npu:0", "memory": 0, "locks": locks}
    assert type(device["name"]) is str


def test_a_hook_adds_a_device_and_replaces_one_of_the_same_name(config: Any) -> None:
    config.announced += [{"name": "npu:0", "kind": "NPU"}, {"name": "cuda:1", "uuid": "slot 2"}]
    devices = {device["name"]: device for device in offer(config)["devices"]}
    assert list(devices) == ["cpu", "cuda:0", "cuda:1", "npu:0"]
    assert devices["npu:0"]["kind"] == "NPU"
    assert devices["npu:0"]["locks"] == [f"{offer(config)['host']} npu:0"]
    assert devices["cuda:1"]["locks"] == ["slot 2"]


@pytest.mark.parametrize(
    ("device", "uuid"),
    [("cpu", ""), ("cuda", "GPU-aa"), ("cuda:1", "GPU-bb"), ("cuda:2", "")],
)
def test_a_device_has_the_uuid_that_it_has_in_all_sessions(
    config: Any, device: str, uuid: str
) -> None:
    assert uuid_of(device, config) == uuid


def test_slices_of_a_gpu_are_devices_with_locks_of_their_own(config: Any, driver: Driver) -> None:
    driver.says(SLICED)
    _, first, second = offer(config)["devices"]
    assert first["kind"] == "NVIDIA H200 MIG 1g.18gb"
    assert first["memory"] == 16 << 30
    assert first["driver"] == "580.65.06"
    assert (first["locks"], second["locks"]) == (["MIG-11"], ["MIG-22"])
    assert selected_alone("cuda", config) == "MIG-11"
    assert selected_alone("cuda:1", config) == "MIG-22"


def test_whole_gpus_need_no_selection(config: Any) -> None:
    assert selected_alone("cuda:1", config) == ""


@pytest.mark.parametrize(("visible", "uuid"), [("MIG-22", "MIG-22"), ("0", "MIG-11")])
def test_a_slice_that_cuda_shows_is_the_first_device(
    config: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, visible: str, uuid: str
) -> None:
    driver.says(SLICED)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert uuid_of("cuda", config) == uuid


def test_a_framework_is_there_if_the_imports_of_its_predictor_are() -> None:
    found = frameworks(find_predictors())
    assert found["onnxruntime"] == version("onnxruntime")
    assert not {"mxnet", "cntk", "caffe"} & set(found)


ONE_OF_TWO = """
import numpy
try:
    import no_such_framework
except ImportError:
    import pytest
"""
IN_A_FUNCTION = """
import numpy
def load(request):
    import no_such_framework
"""


@pytest.mark.parametrize(
    ("code", "is_there"),
    [
        ("import numpy, os", True),
        ("import numpy\nimport no_such_framework", False),
        (ONE_OF_TWO, True),
        (IN_A_FUNCTION, False),
        ("this is no Python", True),  # the agent says what is wrong with it
    ],
)
def test_imports_are_looked_up_and_never_run(tmp_path: Path, code: str, is_there: bool) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    assert ("mine" in frameworks({"mine": path})) is is_there


@pytest.mark.parametrize(
    ("code", "is_missing"),
    [
        ("import numpy, os", False),
        ("import numpy\nimport no_such_framework", True),
        (ONE_OF_TWO, False),
        (IN_A_FUNCTION, False),
        ("import sys\nsys.path.append('/opt/old')\nimport no_such_framework", False),
        ("import", False),
    ],
)
def test_a_framework_is_missing_only_where_that_is_sure(
    tmp_path: Path, code: str, is_missing: bool
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    assert missing_here(path) == (["no_such_framework"] if is_missing else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu=new-driver, rack=3", {"gpu": "new-driver", "rack": "3"}),
        ("fast", {"fast": ""}),
        ("", {}),
    ],
)
def test_labels_are_read_from_the_text_of_the_environment(
    text: str, expected: dict[str, str]
) -> None:
    assert labels(text) == expected
