"""The device's peaks: measured on the CPU; a GPU's path is not run here."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from mlms_predictors._run import peaks
from mlms_predictors._run.peaks import measure_by_pytorch, measure_peaks


def test_peaks_of_the_cpu_come_with_how_they_were_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peaks, "_SECONDS", 0.001)
    found = measure_peaks("cpu", 2)
    assert found.flops > 0
    assert found.bytes > 0
    assert "in 2 threads" in found.how
    assert "kernels" in found.how


def test_faster_kernels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    product = peaks._Product
    monkeypatch.setattr(peaks, "_time_sum", lambda threads: 1.0)
    monkeypatch.setattr(peaks, "_measure_products", lambda: product(2e9, 512))
    monkeypatch.setattr(peaks, "_has_avx512", lambda: True)
    monkeypatch.setattr(peaks, "_measure_products_with", lambda kernels: product(3e9, 1024))
    found = measure_peaks("cpu", None)
    assert found.flops == 3e9
    assert "1024 x 1024 product by AVX-512 kernels" in found.how
    monkeypatch.setattr(peaks, "_measure_products_with", lambda kernels: None)
    found = measure_peaks("cpu", None)
    assert found.flops == 2e9
    assert "512 x 512 product by its own kernels" in found.how


def test_bytes_are_the_three_arrays_of_streams_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_measure_products", lambda: peaks._Product(2e9, 512))
    monkeypatch.setattr(peaks, "_ELEMENTS", 1000)
    monkeypatch.setattr(peaks, "_time_sum", lambda threads: 1e-6)
    assert measure_peaks("cpu", 1).bytes == pytest.approx(3 * 4 * 1000 / 1e-6)


def test_other_kernels_are_measured_in_a_process_of_their_own() -> None:
    found = peaks._measure_products_with("Haswell")
    assert found is not None
    assert found.flops > 0
    assert found.side in peaks._SIDES


def test_the_peaks_of_a_gpu_need_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RuntimeError, match="measured by PyTorch"):
        measure_peaks("cuda:0", None)


@pytest.mark.parametrize(("dtype", "text"), [("float16", "float16"), ("int64", "float32 (tf32 ")])
def test_products_are_of_the_models_type_and_leave_the_flags_as_they_were(
    dtype: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    for name, value in (("_GPU_SIDE", 32), ("_GPU_ELEMENTS", 1 << 10), ("_SECONDS", 0.0)):
        monkeypatch.setattr(peaks, name, value)
    before = torch.backends.cuda.matmul.allow_tf32
    made: list[Any] = []
    product = torch.mm

    def note(one: Any, other: Any) -> Any:
        made.append(one)
        return product(one, other)

    monkeypatch.setattr(torch, "mm", note)
    found = measure_by_pytorch("cpu", dtype, lambda: None)
    assert found.flops > 0
    assert found.bytes > 0
    assert f", {text}" in found.how
    assert str(made[0].dtype).endswith(text.split(" ", maxsplit=1)[0])
    assert len(made[0].unique()) > 100, "values that switch a GPU's wires as a model's do"
    assert torch.backends.cuda.matmul.allow_tf32 == before
