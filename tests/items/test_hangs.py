"""Candidates that never answer: what the baseline took bounds the wait, in the first round, too."""

from __future__ import annotations

import pytest

from tests.support.project import Project

SHORT_WAIT = "import pytest_mlms.measure.agent.process\npytest_mlms.measure.agent.process._LEAST_WAIT = 2.0\n"
"""A conftest.py by which ten times what the baseline took counts from 2 s on, not from a minute."""


@pytest.mark.parametrize(("fault", "kind"), [("stay", "load"), ("mute", "turn")])
def test_a_candidate_that_never_answers_has_regressed(
    project: Project, fault: str, kind: str
) -> None:
    count = project.path / "count"
    count.write_text("xx")  # so that the first process stays
    project.edit("onnxruntime >=1.17", "labour")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    project.pytester.makeconftest(SHORT_WAIT)
    stack = f"here+LABOUR_FAULT={fault}+LABOUR_COUNT={count}"
    project.run("--mlms-against=here", f"--mlms-stack={stack}").assert_outcomes(failed=1)
    (item,) = project.items()
    assert item["verdict"] == "REGRESSED"
    crash = item["comparisons"][0]
    assert crash["quantity"] == "crash"
    assert f"gave no reply to '{kind}' in " in crash["lacking"]
    assert "the other side took" in crash["lacking"]
