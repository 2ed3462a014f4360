"""Setting of an upgrade, the command that finds the release, and packages that no agent uses."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.cli.bisect import _words_of_upgrades
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Place, Stack
from pytest_mlms.decide.upgrade.setting import (
    culprit_command,
    other_indexes,
    point_id,
    session_words,
    setting_of,
    stack_words,
    told_changes,
)
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.declared import resolve
from pytest_mlms.provide.stacks.exact_packages import Difference
from tests.support.printed import mlms_options
from tests.support.upgrade_case import NEW, OLD, case_of, options


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


OLD_TORCH = Stack("old", "torch", requirements=("torch==2.1.0", "scipy[all]<2", "numpy==1.26.4"))
NEW_TORCH = Stack("new", "torch", requirements=("torch==2.2.0", "scipy[all]<2", "numpy==2.2.6"))


def test_the_command_has_what_both_stacks_have_beside_the_release(tmp_path: Path) -> None:
    case = case_of(tmp_path, old=OLD_TORCH, new=NEW_TORCH)
    assert list(stack_words(case, tmp_path, tmp_path)) == ["--with", "scipy[all]<2"]
    declared = replace(NEW_TORCH, place=Place(tmp_path / "stacks.yaml", 3))
    words = list(stack_words(replace(case, stack=declared), tmp_path, tmp_path))
    command = culprit_command("m.yaml", "torch==2.1.0", "torch==2.2.0", "crash", words)
    read = mlms_options(shlex.split(command))
    assert (read.stack, read.more) == ("new", ["scipy[all]<2"])


def test_the_command_names_the_folder_of_a_stack_that_is_declared_above_its_own(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    case = case_of(folder, old=OLD_TORCH, new=NEW_TORCH)
    declared = replace(case, stack=replace(NEW_TORCH, place=Place(tmp_path / "stacks.yaml", 3)))
    below = tmp_path / "below"
    assert f"--mlms-manifests={tmp_path}" not in list(stack_words(declared, tmp_path, tmp_path))
    words = list(stack_words(declared, below, below))
    command = culprit_command("m.yaml", "torch==2.1.0", "torch==2.2.0", "crash", words)
    assert mlms_options(shlex.split(command)).manifests == [tmp_path]


def test_the_command_looks_below_the_root_and_not_in_the_folder_that_it_is_typed_in(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    (tmp_path / "models").mkdir()
    case = case_of(tmp_path / "models", old=OLD_TORCH, new=NEW_TORCH)
    beside = replace(case, stack=replace(NEW_TORCH, place=Place(work / "stacks.yaml", 3)))
    assert "--mlms-manifests=." in stack_words(beside, tmp_path, work)
    above = replace(case, stack=replace(NEW_TORCH, place=Place(tmp_path / "stacks.yaml", 3)))
    assert list(stack_words(above, tmp_path, work))[:3] == ["--stack", "new", "--with"]


def test_the_command_has_the_options_of_the_session_that_decide_an_upgrade(
    tmp_path: Path,
) -> None:
    asked = options(outputs=0, clock="wall", seed=3, predictors=(tmp_path / "own",))
    words = list(session_words(asked, tmp_path))
    command = culprit_command("m.yaml", "torch==2.1.0", "torch==2.2.0", "crash", words)
    read = mlms_options(shlex.split(command))
    assert (read.outputs, read.clock, read.seed, read.predictors) == (0, "wall", 3, [Path("own")])
    assert _words_of_upgrades(read) == ("--mlms-outputs=all", "--mlms-clock=wall", "--mlms-seed=3")


def test_the_command_names_a_stack_that_has_variables_though_it_is_not_declared(
    tmp_path: Path,
) -> None:
    new = replace(NEW_TORCH, name="torch==2.2.0+A=1", env=(("A", "1"),))
    case = case_of(tmp_path, old=OLD_TORCH, new=new)
    assert list(stack_words(case, tmp_path, tmp_path))[:2] == ["--stack", "torch==2.2.0+A=1"]
    secret = replace(new, name="torch==2.2.0+TOKEN=***", env=(("TOKEN", "1"),))
    assert "--stack" not in list(stack_words(replace(case, stack=secret), tmp_path, tmp_path))


def test_the_command_has_the_wheels_that_both_stacks_have_beside_the_release(
    tmp_path: Path,
) -> None:
    beside = f"{tmp_path}/job@2/beside-1.0-py3-none-any.whl"
    nightly = f"{tmp_path}/torch-2.3.0-cp311-cp311-linux_x86_64.whl"
    old = replace(OLD_TORCH, requirements=(*OLD_TORCH.requirements, beside, nightly))
    new = replace(NEW_TORCH, framework="pytorch", requirements=(nightly, beside, "numpy"))
    case = case_of(tmp_path, old=old, new=new)
    words = list(stack_words(case, tmp_path, tmp_path))
    assert words == ["--with", beside, "--with", "numpy==1.26.4"]


@pytest.mark.parametrize("typed", ["old", "new"])
def test_the_command_has_the_versions_that_one_side_asks_for_and_the_other_leaves_open(
    tmp_path: Path, typed: str
) -> None:
    frameworks = find_predictors()
    texts = {"old": "onnxruntime==1.17.0", "new": "onnxruntime==1.18.0"}
    texts[typed] += " numpy>=2"
    sides = {side: resolve(text, {}, frameworks) for side, text in texts.items()}
    case = case_of(tmp_path, old=sides["old"], new=sides["new"])
    assert list(stack_words(case, tmp_path, tmp_path)) == ["--with", "numpy>=2"]
    (other,) = {"old", "new"} - {typed}
    sides[other] = resolve(f"{texts[other]} numpy<2", {}, frameworks)
    apart = replace(case, stack=sides["new"], against=sides["old"])
    assert list(stack_words(apart, tmp_path, tmp_path)) == []


def test_sides_that_ask_other_indexes_have_no_command(tmp_path: Path) -> None:
    private = replace(OLD_TORCH, options=("--index-url=https://example.org/simple", "--pre"))
    case = case_of(tmp_path, old=private, new=NEW_TORCH)
    assert other_indexes(case)
    also = replace(NEW_TORCH, options=("--index-url=https://example.org/simple",))
    assert not other_indexes(replace(case, stack=also))


@pytest.mark.parametrize(("framework", "is_told"), [("shift", True), ("onnxruntime", False)])
def test_no_index_is_asked_for_a_framework_of_one_s_own_that_two_interpreters_have(
    tmp_path: Path, framework: str, is_told: bool
) -> None:
    old, new = (Stack(name, framework, interpreter=f"/{name}/python") for name in ("old", "new"))
    case = case_of(tmp_path, old=old, new=new)
    assert ("both interpreters" in other_indexes(case)) == is_told
    made = replace(case, stack=Stack("made", framework, requirements=(f"{framework}==2",)))
    assert not other_indexes(made)


PILLOW = Difference("pillow", "8.4.0", "12.0.0")
NUMPY = Difference("numpy", "2.4.6", "2.2.6")


@pytest.fixture
def predictor(tmp_path: Path) -> Path:
    path = tmp_path / "plain.py"
    path.write_text("import numpy\n")
    return path


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """An upgrade between stacks that ask for two releases of Pillow."""
    made = case_of(tmp_path)
    old = Stack("old", "plain", requirements=("plain", "Pillow==8.4.0"))
    new = replace(old, name="new", requirements=("plain", "pillow==12.0.0"))
    return replace(made, stack=new, against=old)


def test_stacks_that_differ_only_in_pillow_are_refused(case: Case, predictor: Path) -> None:
    message = "new and old differ only in what no agent uses: pillow 8.4.0 → 12.0.0; .*'preprocess: stack' under"
    with pytest.raises(MlmsError, match=message):
        told_changes(case, predictor, [PILLOW])


def test_what_no_stack_can_do_is_compared_by_two_runs(case: Case, predictor: Path) -> None:
    stacks = [
        replace(each, requirements=("librosa",)) for each in (case.stack, case.baseline.stack)
    ]
    sounds = replace(case, stack=stacks[0], against=stacks[1])
    with pytest.raises(MlmsError, match=r"librosa==0.10 installed beside it"):
        told_changes(sounds, predictor, [Difference("librosa", "0.10", "0.11")])


def test_stacks_that_decode_pictures_themselves_are_compared(case: Case, predictor: Path) -> None:
    manifest = case.loaded.manifest
    by_stack = manifest.evaluate.model_copy(update={"preprocess": "stack"})
    loaded = replace(case.loaded, manifest=manifest.model_copy(update={"evaluate": by_stack}))
    told = told_changes(replace(case, loaded=loaded), predictor, [PILLOW])
    assert told == ["pillow 8.4.0 → 12.0.0"]


def test_a_package_that_prepares_inputs_is_told_beside_others(case: Case, predictor: Path) -> None:
    numpy, pillow = told_changes(case, predictor, [NUMPY, PILLOW])
    assert numpy == "numpy 2.4.6 → 2.2.6"
    assert pillow.startswith("pillow 8.4.0 → 12.0.0 (not compared: ")


def test_what_a_predictor_imports_is_compared(case: Case, predictor: Path) -> None:
    predictor.write_text("from PIL import Image\n")
    assert told_changes(case, predictor, [PILLOW]) == ["pillow 8.4.0 → 12.0.0"]


def test_what_no_stack_asks_for_is_told_as_it_is(case: Case, predictor: Path) -> None:
    bare = replace(case.stack, requirements=("plain",))
    moved = replace(case, stack=bare, against=replace(bare, name="old"))
    assert told_changes(moved, predictor, [PILLOW]) == ["pillow 8.4.0 → 12.0.0"]


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
