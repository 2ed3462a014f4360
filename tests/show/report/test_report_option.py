"""The option --mlms-report, in runs of pytest."""

from __future__ import annotations

import pytest

from tests.support.project import Project
from tests.support.small_disk import fill, mount_small_disk


def test_a_run_writes_its_report_beside_its_results(project: Project) -> None:
    project.set_thresholds("  top1: {min: 1.0}")
    project.run("--mlms-report=report.html", "-kaccuracy").stdout.fnmatch_lines(
        ["mlms: report in */report.html", "mlms: results in *"]
    )
    page = (project.path / "report.html").read_text()
    assert "digits-cnn: 1 of 1 failed" in page
    assert "limit at least 100.00 %" in page
    assert "digits.yaml:" in page
    (item,) = project.items()
    assert item["reproduce"].startswith("pytest ")
    assert "--mlms-report" not in item["reproduce"]


def test_a_report_that_a_full_disk_refuses_costs_no_verdict(project: Project) -> None:
    with mount_small_disk(project.path / "disk") as disk:
        fill(disk)
        done = project.run(f"--mlms-report={disk}/report.html", "-kaccuracy")
    done.assert_outcomes(passed=1)
    assert done.ret == pytest.ExitCode.OK
    done.stdout.fnmatch_lines(["mlms: *report can't be written: No space*; try: mlms report *"])


def test_what_is_missing_is_named_before_anything_is_measured(project: Project) -> None:
    done = project.run("--mlms-report=no/report.html")
    done.stderr.fnmatch_lines(["*--mlms-report: there is no folder */no; make it*"])
    (project.path / "conftest.py").write_text("import sys\nsys.modules['jinja2'] = None\n")
    done = project.run("--mlms-report=report.html")
    done.stderr.fnmatch_lines(["*--mlms-report: *needs jinja2; pip install 'jinja2>=*'"])
    assert done.ret == pytest.ExitCode.USAGE_ERROR


def test_a_run_without_a_regressed_upgrade_says_so_in_the_report_of_upgrades(
    project: Project,
) -> None:
    done = project.run("-omlms_upgrade_report=u.md", "-kaccuracy")
    done.stdout.fnmatch_lines(["mlms: no upgrade regressed, and */u.md says so"])
    none = "No upgrade is REGRESSED: there is none in this run.\n"
    assert (project.path / "u.md").read_text() == none
    assert "upgrade-report" not in project.items()[0]["reproduce"]
    done = project.run("--mlms-upgrade-report=no/u.md")
    done.stderr.fnmatch_lines(["*--mlms-upgrade-report: there is no folder */no; make it*"])


def test_with_a_history_the_report_has_its_series(project: Project) -> None:
    project.run("--mlms-report=report.html", "--mlms-history", "-kaccuracy")
    assert "Over time" in (project.path / "report.html").read_text()
