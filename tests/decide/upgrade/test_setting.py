"""Setting of an upgrade."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.decide.upgrade.setting import setting_of
from tests.support.upgrade_case import NEW, OLD, case_of, options


def test_a_setting_has_what_was_asked_for(tmp_path: Path) -> None:
    case = case_of(tmp_path, "{tolerance: 5 %}", replace(OLD, threads=1), replace(NEW, threads=4))
    made = setting_of(case, options(tolerance=0.1, budget=30.0), {"busy": 0.5}, ["GPU 1980 MHz"])
    assert (made.a, made.b) == ("old", "new")
    assert made.threads == (1, 4)
    assert made.budget == 30.0
    assert made.tolerance_given
    assert made.place == str(case.loaded.place("thresholds", "upgrade"))
    assert made.cpu_shares == {"busy": 0.5}
    assert made.gpu_notes == ["GPU 1980 MHz"]
    assert made.machine["cores"]


def test_a_tolerance_that_was_not_given_is_known(tmp_path: Path) -> None:
    made = setting_of(case_of(tmp_path), options(), {}, [])
    assert not made.tolerance_given


def test_a_setting_has_the_point_as_a_person_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    made = setting_of(case, options(), {}, [])
    file = case.loaded.path.relative_to(tmp_path)
    assert made.point == f"{file}::test_upgrade[cpu-b{case.batch_size}]"
    assert made.framework == "onnxruntime"
    monkeypatch.chdir("/")
    assert setting_of(case, options(), {}, []).point.startswith(f"{tmp_path}"[1:])


def test_a_setting_tells_what_differs_beside_packages_without_secrets(tmp_path: Path) -> None:
    old = replace(OLD, threads=1, env=(("A", "1"), ("TOKEN", "x1")), interpreter="/a/python")
    new = replace(NEW, threads=4, env=(("B", "2"), ("TOKEN", "x2")), interpreter="/b/python")
    new = replace(new, model_options=(("mode", "none"),))
    case = case_of(tmp_path, old=old, new=new)
    assert setting_of(case, options(), {}, []).differences == [
        "interpreter /a/python → /b/python",
        "$A 1 → not set",
        "$TOKEN *** → ***",
        "threads 1 → 4",
        "option mode not set → none",
        "$B not set → 2",
    ]
    alike = replace(case, stack=old)
    assert setting_of(alike, options(), {}, []).differences == []
