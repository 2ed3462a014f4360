"""The command that finds the release which made an upgrade worse."""

from __future__ import annotations

import shlex

from pytest_mlms.upgrade.culprit import culprit_command, point_id


def test_the_command_survives_a_shell_whatever_the_manifest_is_called() -> None:
    point = point_id("my models/it's.yaml", "cuda:0", 8)
    command = culprit_command(point, "torch==2.1.0+cu118", "torch==2.2.0", "latency")
    assert shlex.split(command) == [
        "mlms",
        "culprit",
        "my models/it's.yaml::test_upgrade[cuda:0-b8]",
        "--good",
        "torch==2.1.0+cu118",
        "--bad",
        "torch==2.2.0",
        "--quantity",
        "latency",
    ]
