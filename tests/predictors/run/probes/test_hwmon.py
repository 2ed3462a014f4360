"""The probe ``hwmon``: the host's sensors, read from files as hwmon has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlms_predictors._run.probes import hwmon, open_probe

from tests.support.probes import refusal, values

SENSORS = {
    "name": "board",
    "power1_average": "42500000",
    "temp1_input": "61000",
    "temp2_input": "x",
}


def test_sensors_are_read_in_watts_and_degrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hwmon, "HWMON", str(tmp_path))
    folder = tmp_path / "hwmon3"
    folder.mkdir()
    for name, text in SENSORS.items():
        (folder / name).write_text(text)
    with open_probe("hwmon", "cpu", "hardware") as probe:
        probe.between()
        (folder / "power1_average").write_text("")  # of a sensor that fails for a while
        probe.between()
    assert "invalid literal" in probe.missing.pop(str(folder / "power1_average"))
    assert probe.fault == ""
    assert len(values(probe, "board temp1_input (hwmon3)")) >= 2
    found = [(series.name, series.unit) for series in probe.series]
    assert found == [("board power1_average (hwmon3)", "W"), ("board temp1_input (hwmon3)", "degC")]
    assert set(values(probe, "board power1_average (hwmon3)")) == {42.5}
    assert set(values(probe, "board temp1_input (hwmon3)")) == {61}
    assert list(probe.missing) == [str(folder / "temp2_input")]


def test_a_machine_without_sensors_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hwmon, "HWMON", str(tmp_path))
    assert "no sensors of power or temperature in" in refusal("hwmon")
