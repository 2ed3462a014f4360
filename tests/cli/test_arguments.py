"""Arguments and output that several commands share."""

from __future__ import annotations

import pytest

from pytest_mlms.cli.arguments import show_step


def test_an_installation_has_a_line_for_each_download(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [
        "installing",
        "Collecting numpy==2.4.6",
        "Downloading numpy-2.4.6.whl (16.6 MB)",
        "Installing collected packages: sortedcontainers, numpy",
        "",
    ]
    for step in steps:
        show_step(step)
    printed = ["installing", "Downloading numpy-2.4.6.whl (16.6 MB)", "Installing 2 packages"]
    assert capsys.readouterr() == ("", "".join(f"{line}\n" for line in printed))
