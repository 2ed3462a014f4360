"""Gates that the command line or an ini file names, and that no upgrade of a run measures."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from pytest_mlms.decide.expected import gates_of
from pytest_mlms.items.warned import warn_of_run
from pytest_mlms.provide.cases import case_of
from pytest_mlms.session import FIRST_WORKERS, SESSION
from pytest_mlms.warning_types import MlmsNotGated


def warn_of_idle_gates(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Warn of each gate that judges nothing, as that of queries where no load is run.

    No error, since a gate may be for other runs with the same ini file.
    """
    session = config.stash[SESSION]
    options = session.config
    upgrades = [case for case in map(case_of, items) if case and case.kind == "upgrade"]
    if not upgrades or session.worker not in FIRST_WORKERS:
        return
    measured = {name for case in upgrades for name in gates_of(case, options)}
    place = os.path.relpath(upgrades[0].loaded.path)
    for gate in options.gate:
        name = gate.partition("=")[0]
        if name not in measured:
            text = f"--mlms-gate={gate} judges nothing: no upgrade of this run measures {name}"
            advice = "leave it out, or run one that does, as of a scenario with a load, or on a GPU"
            warn_of_run(config, place, f"{text}; {advice}", MlmsNotGated)
