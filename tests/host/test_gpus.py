"""GPUs as nvidia-smi lists them, by a hand-written program in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.host.gpus import Gpu, visible_gpus

TWO_GPUS = """\
GPU-aa, NVIDIA H200, 143771, 580.65.06
GPU-bb, NVIDIA GB10, [N/A], 580.65.06
"""
H200 = Gpu("GPU-aa", "NVIDIA H200", 143771 << 20, "580.65.06")
GB10 = Gpu("GPU-bb", "NVIDIA GB10", 0, "580.65.06")


class NvidiaSmi:
    """A program called nvidia-smi, alone on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = folder / "nvidia-smi"
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def runs(self, script: str) -> None:
        self._path.write_text(f"#!/bin/sh\n{script}\n")
        self._path.chmod(0o755)

    def prints(self, text: str) -> None:
        self.runs(f"echo '{text.rstrip()}'")

    def gpus(self, visible: str | None = None) -> list[Gpu]:
        if visible is not None:
            self._monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        visible_gpus.cache_clear()
        try:
            return visible_gpus()
        finally:
            visible_gpus.cache_clear()


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaSmi:
    return NvidiaSmi(tmp_path, monkeypatch)


def test_gpus_are_those_of_nvidia_smi(nvidia_smi: NvidiaSmi) -> None:
    nvidia_smi.prints(TWO_GPUS)
    assert nvidia_smi.gpus() == [H200, GB10]


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("1,0", [GB10, H200]),
        ("GPU-b", [GB10]),
        ("1,7,0", [GB10]),
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_in_the_order_of_cuda(
    nvidia_smi: NvidiaSmi, visible: str, gpus: list[Gpu]
) -> None:
    nvidia_smi.prints(TWO_GPUS)
    assert nvidia_smi.gpus(visible) == gpus


def test_warnings_and_their_status_hide_no_gpu(nvidia_smi: NvidiaSmi) -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:01:00.0"
    nvidia_smi.runs(f"echo '{TWO_GPUS}{warning}'; exit 14")
    assert nvidia_smi.gpus() == [H200, GB10]


def test_a_machine_without_nvidia_smi_has_no_gpu(nvidia_smi: NvidiaSmi) -> None:
    assert nvidia_smi.gpus() == []


def test_a_driver_that_fails_has_no_gpu(nvidia_smi: NvidiaSmi) -> None:
    nvidia_smi.runs("echo 'NVIDIA-SMI has failed'; exit 9")
    assert nvidia_smi.gpus() == []
