"""The registry of probes, and the set of those that observe together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run import probes
from mlms_predictors._run.probe import Probe, ProbeUnavailable
from mlms_predictors._run.probes import ProbeSet, open_probe, probe_names

from tests.support.probes import refusal
from tests.support.project import ROOT

FOLDER = ROOT / "predictors" / "_run" / "probes"


class Fake(Probe):
    """A probe that remembers whether it was stopped."""

    name = "fake"
    stopped = False

    def read(self) -> dict[str, int]:
        return {"seven": 7}

    def stop(self) -> None:
        self.stopped = True


def test_each_file_is_a_probe_of_its_name() -> None:
    files = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")}
    assert set(probe_names()) == files
    assert {"perf", "io", "cupti"} <= files
    for name in files:
        probe = open_probe(name, "cpu", "hardware")
        assert probe.name == name
        assert probe.levels
        assert set(probe.rising) <= set(probe.units)


def test_a_new_file_is_a_new_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from mlms_predictors._run.probe import Probe\nclass Mine(Probe):\n    name = 'mine'\n"
    )
    monkeypatch.setattr(probes, "__path__", [*probes.__path__, str(tmp_path)])
    assert "mine" in probe_names()
    assert open_probe("mine", "cpu", "hardware", {"depth": 2}).options == {"depth": 2}


def test_an_unknown_probe_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ProbeUnavailable, match="no probe 'magic'; there are bpftrace, cupti, gpm"):
        open_probe("magic", "cpu", "hardware")
    with pytest.raises(ProbeUnavailable, match="no probe '_files'"):
        open_probe("_files", "cpu", "hardware")


@pytest.mark.parametrize("name", ["cupti", "kineto", "nvml", "gpm"])
def test_a_probe_of_gpus_is_refused_on_the_cpu(name: str) -> None:
    assert "the device is cpu" in refusal(name, "cpu", "kernel")


def use_fakes(monkeypatch: pytest.MonkeyPatch) -> list[Fake]:
    """Have ``open_probe`` make fakes, refuse ``absent`` and fail for ``broken``."""
    made: list[Fake] = []

    def fake(name: str, device: str, level: str, options: Any) -> Probe:
        if name == "absent":
            raise ProbeUnavailable("not here")
        if name == "broken":
            raise ZeroDivisionError("a fault of the probe")
        made.append(Fake(device, level, options))
        return made[-1]

    monkeypatch.setattr(probes, "open_probe", fake)
    return made


def test_a_set_has_the_probes_that_observe_and_the_reasons_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = use_fakes(monkeypatch)
    names = ["absent", "fake", "broken"]
    with ProbeSet(names, "cuda:1", "hardware", {"fake": {"a": 1}}) as probe_set:
        probe_set.between()
        probe_set.between()
    assert probe_set.entered == made
    assert [(one.device, one.options) for one in made] == [("cuda:1", {"a": 1})]
    refused = {status.probe: status.reason for status in probe_set.refused}
    assert refused == {"absent": "not here", "broken": "ZeroDivisionError: a fault of the probe"}
    (status,) = probe_set.statuses()
    assert (status.probe, status.available, status.reason) == ("fake", True, "")
    (series,) = probe_set.series()
    assert series.values == [7, 7]
    assert made[0].stopped


def test_an_interruption_stops_the_probes_that_were_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = use_fakes(monkeypatch)

    def interrupt(self: Fake) -> None:
        if len(made) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Fake, "start", interrupt)
    with pytest.raises(KeyboardInterrupt), ProbeSet(["first", "second"], "cpu", "hardware"):
        pass
    assert [one.stopped for one in made] == [True, True]
