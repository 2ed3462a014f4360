"""The probe ``rapl``: energy of the host, read from files as powercap has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlms_predictors._run.probes import open_probe, rapl

from tests.support.probes import refusal


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rapl, "POWERCAP", str(tmp_path))
    monkeypatch.setattr(rapl.Rapl, "period", None)
    return tmp_path


def write_domain(folder: Path, microjoules: int) -> None:
    domain = folder / "intel-rapl:0"
    domain.mkdir(parents=True, exist_ok=True)
    (domain / "name").write_text("package-0\n")
    (domain / "max_energy_range_uj").write_text("1000000\n")
    (domain / "energy_uj").write_text(f"{microjoules}\n")


def test_energy_goes_on_where_its_counter_wraps(powercap: Path) -> None:
    write_domain(powercap, 900_000)
    with open_probe("rapl", "cpu", "hardware") as probe:
        probe.between()
        write_domain(powercap, 400_000)
        probe.between()
    (series,) = probe.series
    assert (series.name, series.unit) == ("package-0 energy (intel-rapl:0)", "J")
    assert series.rising
    assert series.values == pytest.approx([0, 0.5])


def test_a_machine_without_domains_is_the_reason(powercap: Path) -> None:
    assert "no RAPL domains in" in refusal("rapl")


def test_a_counter_that_only_root_may_read_is_the_reason(
    powercap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_domain(powercap, 0)

    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(rapl, "read_text", refuse)
    assert "is readable by root only since CVE-2020-8694" in refusal("rapl")
