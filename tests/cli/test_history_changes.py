"""The commands mlms history changes and mlms history accept."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.cli import history_changes
from pytest_mlms.cli.main import main
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.changes import set_cause
from pytest_mlms.keep.history.store import open_history
from tests.support.histories import NEW_LOCK, OLD_LOCK, run_name, write_run

RUNS = 20
STEP = 15


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a history in which two models get 20 % slower at the 16th run."""
    folder = tmp_path_factory.mktemp("stepped")
    history = open_history(folder / "history.sqlite")
    for number in range(RUNS):
        ratio = 1.2 if number >= STEP else 1 + 0.001 * (number % 3)
        add_run(history, write_run(folder / "results", number, items=2, ratio=ratio))
    history.dispose()
    return (folder / "history.sqlite").read_bytes()


@pytest.fixture
def history(stepped: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "history.sqlite"
    path.write_bytes(stepped)
    monkeypatch.setenv("MLMS_HISTORY", str(path))
    monkeypatch.chdir(path.parent)  # away from this project's own settings
    return path


def ids_in(output: str) -> list[str]:
    return re.findall(r"^(\d+) +open", output, re.MULTILINE)


def test_changes_of_one_run_are_one_block(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "changes"]) == 0
    output = capsys.readouterr().out
    assert output.count("since run") == 1
    assert f"since run {run_name(STEP)} of 2026-01-16" in output
    assert f"last run before: {run_name(STEP - 1)}" in output
    assert "open, worse" in output
    assert "open, better" in output  # throughput
    assert "654 µs → 784 µs" in output
    assert max(map(len, output.splitlines())) <= 80


def test_changes_are_found_once(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["history", "changes"])
    first = ids_in(capsys.readouterr().out)
    main(["history", "changes"])
    output = capsys.readouterr().out
    assert ids_in(output) == first
    assert "0 with new points" in output


def test_series_are_selected_as_by_pytest(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["history", "changes", "-k", "model-1 and P50"])
    assert len(ids_in(capsys.readouterr().out)) == 1
    assert main(["history", "changes", "-k", "a and ("]) == 2
    assert "-k 'a and ('" in capsys.readouterr().err


def test_json_has_the_groups(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["history", "changes", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    [group] = found["groups"]
    assert group["first_run"] == run_name(STEP)
    ratios = [change["ratio"] for change in group["changes"]]
    assert ratios == pytest.approx([1.2] * len(ratios), rel=0.005)
    assert found["series"] == 18


def test_a_suspicion_never_fails_and_a_confirmed_loss_does(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "changes", "--fail"]) == 0
    number = int(ids_in(capsys.readouterr().out)[0])
    set_cause(open_history(history), number, "software", confirmed_by="run-9", reason="REGRESSED")
    assert main(["history", "changes"]) == 0
    assert "cause: software, by run run-9" in capsys.readouterr().out
    assert main(["history", "changes", "--fail"]) == 1
    assert f"accept {number} --reason 'why' --history" in capsys.readouterr().err
    main(["history", "accept", str(number), "--reason", "known"])
    assert main(["history", "changes", "--fail"]) == 0


def test_a_confirmed_gain_does_not_fail(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["history", "changes", "-k", "throughput"])
    for number in ids_in(capsys.readouterr().out):
        set_cause(open_history(history), int(number), "software")
    assert main(["history", "changes", "--fail"]) == 0


def test_accepted_changes_are_shown_with_all_only(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["history", "changes", "-k", "p50"])
    numbers = ids_in(capsys.readouterr().out)
    assert main(["history", "accept", *numbers, "--reason", "new machine image"]) == 0
    assert capsys.readouterr().out.count("accepted") == len(numbers)
    main(["history", "changes", "-k", "p50"])
    assert "since run" not in capsys.readouterr().out
    main(["history", "changes", "-k", "p50", "--all"])
    assert "reason: new machine image" in capsys.readouterr().out


def test_accepting_twice_changes_nothing(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["history", "changes"])
    main(["history", "accept", "1", "--reason", "first"])
    capsys.readouterr()
    assert main(["history", "accept", "1", "--reason", "second"]) == 0
    assert "change 1: was accepted before" in capsys.readouterr().out
    main(["history", "changes", "--all"])
    output = capsys.readouterr().out
    assert "reason: first" in output
    assert "second" not in output


def test_an_unknown_change_is_an_error_that_names_those_there_are(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "accept", "5", "--reason", "x"]) == 2
    assert "mlms history changes finds them" in capsys.readouterr().err
    main(["history", "changes"])
    capsys.readouterr()
    assert main(["history", "accept", "1", "99", "--reason", "x"]) == 2
    assert re.search(r"no change 99; there are 1-\d+", capsys.readouterr().err)
    main(["history", "changes"])
    assert "1 accepted" not in capsys.readouterr().out


def test_few_points_are_said_to_be_too_few_and_series_to_be_too_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = tmp_path / "history.sqlite"
    add_run(open_history(history), write_run(tmp_path / "results", 0))
    main(["history", "changes", "--history", str(history)])
    output = capsys.readouterr().out
    assert "9 have fewer than 12 points: too few to tell a change where no version" in output
    assert "no change" in output
    assert "a step from the next run on would be seen after" in output
    monkeypatch.setattr(history_changes, "_MOST_SIGHTS", 3)
    main(["history", "changes", "--history", str(history)])
    output = capsys.readouterr().out
    assert "how small steps could be is told of 3 series: choose some by -k" in output
    main(["history", "changes", "--history", str(history), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["sights"] is None


@pytest.mark.parametrize("words", [["changes"], ["accept", "1", "--reason", "x"]])
def test_a_history_that_is_not_there_is_an_error_and_none_is_made(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none.sqlite"
    assert main(["history", *words, "--history", str(missing)]) == 2
    assert "there is no history" in capsys.readouterr().err
    assert not missing.exists()


def test_an_empty_reason_is_refused(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["history", "accept", "1", "--reason", " "])
    assert "say why" in capsys.readouterr().err


def test_levels_and_ratio_agree(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["history", "changes", "--format", "json"])
    [group] = json.loads(capsys.readouterr().out)["groups"]
    for change in group["changes"]:
        assert change["after"] / change["before"] == pytest.approx(change["ratio"])


def morning(
    folder: Path, noise: float, step: float, seed: int, nights: int
) -> tuple[Path, list[str]]:
    """Add ten nights, and some on another version; return the history and its command.

    All quantities of a night are off by the same, as on a slow machine.
    """
    history = folder / "history.sqlite"
    engine = open_history(history)
    rng = np.random.default_rng(seed)
    for night in range(10 + nights):
        is_new = night >= 10
        launch = {"command": ["python"], "lock": NEW_LOCK if is_new else OLD_LOCK}
        ratio = (1 + step if is_new else 1) * float(np.exp(rng.normal(0, noise)))
        run = write_run(folder / "results", night, ratio=ratio, launch=launch, versions={})
        add_run(engine, run)
    engine.dispose()
    return history, ["history", "changes", "--history", str(history)]


TOLD = r"(open|suspected), worse: model-0 onnxruntime-cpu-b64-offline latency_p50"


@pytest.mark.parametrize(("noise", "least_open"), [(0.003, 5), (0.008, 4), (0.015, 0)])
def test_a_version_that_is_slower_by_8_percent_is_told_on_the_first_morning(
    noise: float, least_open: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for seed in range(1, 6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        history, command = morning(folder, noise, 0.08, seed, nights=1)
        assert main(command) == 0
        output = capsys.readouterr().out
        found += re.findall(TOLD, " ".join(output.split()))
        assert "onnxruntime 1.32.0 → 1.33.0" in " ".join(output.split())
        assert f"mlms history changes --confirm --history={history}" in output
    assert len(found) == 5
    assert found.count("open") >= least_open


def test_after_five_nights_a_step_in_noise_is_one_change_with_its_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for seed in range(1, 6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _, command = morning(folder, 0.015, 0.08, seed, nights=5)
        assert main([*command, "-kp50"]) == 0
        output = " ".join(capsys.readouterr().out.split())
        found += re.findall(TOLD, output)
        assert f"since run {run_name(10)}" in output or f"from {run_name(10)} on" in output
        assert "onnxruntime 1.32.0 → 1.33.0" in output
    assert len(found) == 5
    assert found.count("open") >= 4


@pytest.mark.parametrize("noise", [0.003, 0.008, 0.015])
def test_a_version_that_changes_nothing_is_no_change_and_says_what_could_be_seen(
    noise: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, command = morning(tmp_path, noise, 0.0, seed=1, nights=1)
    assert main(command) == 0
    output = capsys.readouterr().out
    assert "9 series, 9 with new points: no change" in output
    assert f"version changed with the last run, from {run_name(10)} on" in output
    assert re.search(r"too few runs to see less than [\d.]+ % to [\d.]+ % in a single", output)
    assert "suspected" not in output
    assert "confirm" not in output


def test_the_command_that_is_printed_has_the_options_and_can_be_read_by_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # away from this project's own settings
    folder = tmp_path / "with a space"
    folder.mkdir()
    history, command = morning(folder, 0.015, 0.08, seed=2, nights=1)
    options = ["-kp50 or p95", f"--mlms-cache={folder}", "--mlms-allow-code"]
    main([*command, *options])
    output = capsys.readouterr().out
    [line] = [line for line in output.splitlines() if line.startswith("confirm: ")]
    _, *words = shlex.split(line)
    expected = ["mlms", "history", "changes", "--confirm", f"--history={history}", *options]
    assert words == expected


def test_versions_are_in_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, command = morning(tmp_path, 0.015, 0.0, seed=1, nights=2)
    main([*command, "--format", "json"])
    [version] = json.loads(capsys.readouterr().out)["versions"]
    assert (version["first_run"], version["runs"]) == (run_name(10), 2)
    assert version["differences"][0]["after"] == "1.33.0"
    assert version["suspected"] == []
