"""Slices of a GPU (MIG) as devices, above a stub of NVIDIA's driver."""

from __future__ import annotations

import re

import pytest

from tests.support.driver import SLICED, Driver
from tests.support.project import Project

ON_A_SLICE = """
import os, sys, time
from mlms_predictors import onnxruntime
from mlms_predictors.onnxruntime import bind, predict

def versions():
    return {**onnxruntime.versions(), "sliced": "1.0"}

def devices():
    return ["cpu", "cuda:0"]

def load(request):
    found = map(os.environ.get, ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"))
    sys.stderr.write("on %s by %s\\n" % tuple(found))
    return onnxruntime.load(request._replace(device="cpu"))._replace(device=request.device)
"""
"""ONNX Runtime on the CPU, which says that it runs on CUDA's only device."""


@pytest.fixture
def sliced(project: Project, driver: Driver) -> Project:
    """A project whose model is measured on two slices of a GPU."""
    driver.says(re.sub("process .*", "", SLICED))  # of other programs
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / "sliced.py").write_text(ON_A_SLICE)
    project.edit("onnxruntime >=1.17", "sliced")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("scenarios: [single_stream, offline]", "scenarios: [single_stream]")
    project.set_thresholds()
    project.edit("devices: [cpu]", 'devices: [cuda, "cuda:1"]')
    return project


@pytest.mark.parametrize("workers", [[], pytest.param(["-n2"], marks=pytest.mark.slow)])
def test_each_slice_is_measured_by_an_agent_of_its_own(sliced: Project, workers: list[str]) -> None:
    result = sliced.run("--mlms-predictors=predictors", "-kperformance", *workers)
    assert result.ret == 0, result.outlines
    first, second = sorted(sliced.items(), key=lambda item: str(item["device"]))
    found = {item["device"]: item["device_uuid"] for item in (first, second)}
    assert found == {"cuda": "MIG-11", "cuda:1": "MIG-22"}
    for item in (first, second):
        log = (sliced.results / item["logs"][0]).read_text()
        assert f"on {item['device_uuid']} by PCI_BUS_ID\n" in log
    memory = {gpu["uuid"]: gpu["memory"] for gpu in first["machine"]["gpus"]}
    assert memory == {"MIG-11": 16 << 30, "MIG-22": 70 << 30}


def test_a_slice_of_a_worker_is_its_first_device(
    sliced: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sliced.edit('devices: [cuda, "cuda:1"]', "devices: [cuda]")
    worker = "popen//env:CUDA_VISIBLE_DEVICES=MIG-22"
    options = ["--mlms-predictors=predictors", "-kperformance", "--tx", worker, "--dist=load"]
    result = sliced.run(*options)
    assert result.ret == 0, result.outlines
    (item,) = sliced.items()
    assert item["device_uuid"] == "MIG-22"


def test_a_stack_that_chooses_another_gpu_than_pytest_locks_is_refused(sliced: Project) -> None:
    stacks = "other: {framework: sliced, interpreter: current, env: {CUDA_VISIBLE_DEVICES: '1'}}"
    (sliced.path / "stacks.yaml").write_text(stacks)
    result = sliced.run("--mlms-predictors=predictors", "-kperformance", "--mlms-stack=other")
    assert result.ret == 1
    problem = "stacks.yaml:1: stack other has CUDA_VISIBLE_DEVICES=1, and pytest locks other GPUs"
    output = result.stdout.str()
    assert f"{problem}; set it for pytest" in output
    assert "the same as" in output, "the other item has the same error"
