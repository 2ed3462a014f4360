"""The probe ``io``: bytes and system calls of this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlms_predictors._run.probes import io, open_probe

from tests.support.probes import linux, refusal, values


@linux
def test_bytes_that_this_process_writes_are_counted(tmp_path: Path) -> None:
    with open_probe("io", "cpu", "hardware") as probe:
        probe.between()
        (tmp_path / "file").write_bytes(bytes(12_345))
        probe.between()
    written = values(probe, "wchar")
    assert written[1] - written[0] >= 12_345
    assert {series.name for series in probe.series} == set(io.Io.units)


def test_a_file_that_the_kernel_does_not_show_is_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    assert refusal("io") == "/proc/self/io: Permission denied"
