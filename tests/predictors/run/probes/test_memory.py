"""The probe ``memory``: resident memory of this process."""

from __future__ import annotations

import os

from mlms_predictors._run.probes import open_probe

from tests.support.probes import linux, values


@linux
def test_resident_memory_is_sampled_while_a_call_runs() -> None:
    with open_probe("memory", "cpu", "hardware") as probe:
        probe.between()
        block = bytearray(os.urandom(1 << 20)) * 64
        probe.between()
        assert len(block) == 64 << 20
    resident = values(probe, "resident")
    assert resident[-1] - resident[0] > 32 << 20
    assert probe.fault == ""
