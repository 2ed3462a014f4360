"""Replay of the decisions on recorded upgrades."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import read_arrays, write_arrays
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.upgrade.criteria import MISSING, Criteria, missing_gates
from pytest_mlms.decide.upgrade.replay import read_upgrades
from tests.support.paced import Pace, paced_upgrade
from tests.support.upgrade_results import RunFolder, line_of
from tests.support.upgrades import ROUND_RECORD, find, latencies


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def plain(comparisons: Sequence[Comparison]) -> Any:
    return to_plain(list(comparisons))


def test_the_raw_pairs_give_the_recorded_decision_again(folder: RunFolder) -> None:
    folder.write_with_pairs()
    found = folder.replay()
    assert found.from_pairs
    assert found.verdict is Verdict.REGRESSED
    assert not found.is_changed
    assert plain(found.comparisons) == plain(folder.upgrade.comparisons)


def test_the_recorded_figures_give_the_same_decision(folder: RunFolder) -> None:
    folder.write()
    found = folder.replay()
    assert not found.from_pairs
    assert plain(found.comparisons) == plain(folder.upgrade.comparisons)


@pytest.mark.parametrize("has_pairs", [True, False])
def test_groups_of_inputs_and_what_a_process_has_once_are_decided_again(
    folder: RunFolder, has_pairs: bool
) -> None:
    def pace(long: float) -> Pace:
        return lambda array, call, random: (
            3e-3 * long ** (array.size > 16) * random.uniform(1, 1.01)
        )

    lengths = [np.zeros(512 if n % 20 == 0 else 16, np.float32) for n in range(100)]
    sides = pace(10), pace(30)
    result = paced_upgrade(
        lengths,
        *sides,
        seed=3,
        pairs=30,
        idle=(0.0, 0.2),
        folder=folder.path if has_pairs else None,
    )
    assert find(list(result.comparisons), "group_latency").verdict is Verdict.REGRESSED
    names = [f"pairs-{index}.npz" for index in range(len(result.rounds))] if has_pairs else []
    folder.file.write_text(
        json.dumps(
            line_of(
                result.rounds,
                verdict=result.verdict,
                comparisons=result.comparisons,
                input_groups=result.input_groups,
                clock=result.clock,
                batch_size=1,
                artifacts=dict(zip(names, names, strict=True)),
            )
        )
    )
    found = folder.replay()
    assert found.from_pairs is has_pairs
    assert (found.verdict, found.is_changed) == (Verdict.REGRESSED, False)
    recorded = {compared.quantity: compared for compared in result.comparisons}
    for compared in found.comparisons:
        assert plain([compared]) == plain([recorded[compared.quantity]])
    assert {"group_latency", "idle_cpu", "start_time"} <= {
        one.quantity for one in found.comparisons
    }


def test_a_wider_tolerance_changes_the_verdict(folder: RunFolder) -> None:
    folder.write()
    found = folder.replay(tolerance=0.2)
    assert found.verdict is Verdict.PASSED
    assert found.is_changed
    assert find(found.comparisons, "latency").tolerance == 0.2


def test_another_clock_is_read_from_the_pairs(folder: RunFolder) -> None:
    folder.write_with_pairs()
    assert folder.replay(clock="cpu").from_pairs


def test_another_clock_needs_the_pairs(folder: RunFolder) -> None:
    folder.write()
    with pytest.raises(MlmsError, match="another clock needs the raw pairs, pairs-N.npz"):
        folder.replay(clock="wall")


def test_gates_that_another_clock_does_not_measure_are_open(folder: RunFolder) -> None:
    """The item PASSED by a clock without the quantity that was named."""
    gates = ("latency", "latency_p90")
    folder.write_with_pairs(terms=Criteria(dict.fromkeys(gates, 0.3), gates))
    assert folder.replay().verdict is Verdict.PASSED
    for index in range(len(folder.upgrade.rounds)):
        path = folder.path / f"pairs-{index}.npz"
        arrays = read_arrays(path)
        for side in "ab":
            arrays[f"wall_{side}"] = np.ceil(arrays[f"wall_{side}"] * 1e3) * 1e-3
        write_arrays(path, arrays)
    found = folder.replay(clock="wall")
    assert find(found.comparisons, "latency_p90").of == MISSING
    assert found.verdict is Verdict.INCONCLUSIVE


def test_a_gate_that_another_clock_measures_is_decided(folder: RunFolder) -> None:
    folder.write_with_pairs()
    upgrade = folder.upgrade
    lacking = missing_gates(Criteria({"latency_p90": 0.3}, ("latency_p90",)), [])
    folder.write_with_pairs(
        comparisons=[*upgrade.comparisons, *lacking],
        terms=Criteria({"latency": 0.3, "latency_p90": 0.3}, ("latency", "latency_p90")),
    )
    found = folder.replay(clock="wall")
    (compared,) = [one for one in found.comparisons if one.quantity == "latency_p90"]
    assert compared.verdict is Verdict.PASSED
    assert found.verdict is Verdict.PASSED


def test_a_clock_that_was_not_measured_is_an_error_that_names_the_others(
    folder: RunFolder,
) -> None:
    folder.write_with_pairs()
    message = r"the clock device \(.*\) was not measured; there are adj, cpu, wall"
    with pytest.raises(MlmsError, match=message):
        folder.replay(clock="device")


def test_pairs_that_cannot_be_read_are_an_error(folder: RunFolder) -> None:
    folder.write_with_pairs()
    (folder.path / "pairs-1.npz").write_text("cut off")
    with pytest.raises(MlmsError, match=r"pairs-1.npz can't be read: .*; remove it to decide"):
        folder.replay()


def test_pairs_without_a_clock_are_an_error(folder: RunFolder) -> None:
    folder.write_with_pairs()
    path = folder.path / "pairs-1.npz"
    arrays = {name: values for name, values in read_arrays(path).items() if name != "cpu_b"}
    write_arrays(path, arrays)
    with pytest.raises(MlmsError, match=r"pairs-1.npz can't be read: it has no cpu_b; remove it"):
        folder.replay()


def test_figures_of_another_version_are_left_out(folder: RunFolder) -> None:
    folder.write_with_pairs()
    line = json.loads(folder.file.read_text())
    for measured in line["rounds"]:
        measured["figures"]["later"] = measured["figures"]["latency"]
    folder.file.write_text(json.dumps(line))
    assert folder.replay().from_pairs


def test_pairs_that_are_cut_off_anywhere_are_an_error(folder: RunFolder) -> None:
    folder.write_with_pairs()
    path = folder.path / "pairs-1.npz"
    content = path.read_bytes()
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        with pytest.raises(MlmsError, match=r"pairs-1.npz can't be read: "):
            folder.replay()


def test_the_last_measurement_of_an_item_counts(folder: RunFolder) -> None:
    folder.write(verdict=Verdict.ERROR, complete=False)
    interrupted = folder.file.read_text()
    folder.write()
    folder.file.write_text(interrupted + folder.file.read_text())
    assert folder.upgrade.verdict is Verdict.REGRESSED


def test_pairs_of_some_rounds_only_are_not_used(folder: RunFolder) -> None:
    folder.write_with_pairs()
    (folder.path / "pairs-1.npz").unlink()
    assert not folder.replay().from_pairs


def test_a_decision_may_need_fewer_rounds(folder: RunFolder) -> None:
    steady = [replace(ROUND_RECORD, figures=figures) for figures in 7 * latencies(0.0)]
    folder.write(rounds=steady)
    assert folder.replay().rounds == 6


def test_too_few_rounds_of_an_earlier_version_are_named(folder: RunFolder) -> None:
    two = [replace(ROUND_RECORD, figures=figures) for figures in latencies(0.0, 0.0)]
    folder.write(rounds=two, verdict=Verdict.PASSED)
    found = folder.replay()
    assert found.verdict is Verdict.INCONCLUSIVE
    assert find(found.comparisons, "latency").lacking == "needs 6 rounds, had 2"


@pytest.mark.parametrize("verdict", [Verdict.ERROR, Verdict.INVALID])
def test_a_run_that_failed_stays_failed(folder: RunFolder, verdict: Verdict) -> None:
    folder.write(verdict=verdict)
    found = folder.replay(tolerance=0.5)
    assert found.verdict is verdict
    assert not found.is_changed


def test_an_infinite_error_comes_back_from_null(folder: RunFolder) -> None:
    nothing = [replace(ROUND_RECORD, figures=figures) for figures in latencies(0.0, error=np.inf)]
    folder.write(rounds=nothing)
    assert folder.upgrade.rounds[0].figures["latency"].error == np.inf


def test_an_upgrade_is_labelled_as_in_tables(folder: RunFolder) -> None:
    folder.write()
    assert folder.upgrade.sides == "new (B) against old (A), mxnet"
    assert folder.upgrade.point == "cpu-b8"


def test_results_are_read_from_the_folder_or_the_file(folder: RunFolder) -> None:
    folder.write()
    # By their repr, since the records have NaN, which equals nothing.
    assert repr(read_upgrades(folder.path)) == repr(read_upgrades(folder.file))


def test_a_last_line_that_is_cut_off_is_skipped(folder: RunFolder) -> None:
    folder.write()
    with folder.file.open("a") as file:
        file.write('{"type": "it')
    assert folder.upgrade.verdict is Verdict.REGRESSED


def test_a_separator_of_lines_in_a_text_ends_no_line(folder: RunFolder) -> None:
    folder.write(message="a\u2028b\x85c")
    folder.file.write_text(json.dumps(json.loads(folder.file.read_text()), ensure_ascii=False))
    assert folder.upgrade.verdict is Verdict.REGRESSED


def test_a_line_of_another_form_is_an_error_with_its_number(folder: RunFolder) -> None:
    folder.write(rounds=[{"pairs": 40}])
    message = r"results.jsonl:1: is no upgrade of this version of pytest-mlms \(.*\); measure it"
    with pytest.raises(MlmsError, match=message):
        read_upgrades(folder.path)


def test_results_without_upgrades_are_an_error(folder: RunFolder) -> None:
    folder.write(rounds=[])
    with pytest.raises(MlmsError, match="has no upgrade that was measured; it takes a run with"):
        read_upgrades(folder.path)
    folder.file.unlink()
    with pytest.raises(MlmsError, match="can't be read: No such file or directory; name a run's"):
        read_upgrades(folder.path)


@pytest.mark.parametrize("text", ["not\njson\n", "[" * 100_000 + "\n", "[]\n"])
def test_a_line_that_is_not_json_is_an_error_with_its_number(folder: RunFolder, text: str) -> None:
    folder.file.write_text(text)
    with pytest.raises(MlmsError, match=r"results.jsonl:1: is no object of JSON; is it a run's"):
        read_upgrades(folder.path)


def test_a_regression_that_was_expected_stays_one(folder: RunFolder) -> None:
    folder.write(verdict="XFAILED")
    found = folder.replay()
    assert found.verdict is Verdict.XFAILED
    assert not found.is_changed
    assert folder.replay(tolerance=0.5).verdict is Verdict.PASSED


def test_what_a_group_of_inputs_decided_is_kept(folder: RunFolder) -> None:
    folder.write()
    (latency,) = [one for one in folder.upgrade.comparisons if one.quantity == "latency"]
    group = latency.but(quantity="group_latency", verdict=Verdict.REGRESSED)
    folder.write(comparisons=[*folder.upgrade.comparisons, group])
    assert folder.replay(tolerance=0.5).verdict is Verdict.REGRESSED


@pytest.mark.parametrize("has_pairs", [True, False])
def test_stalls_are_decided_again(folder: RunFolder, has_pairs: bool) -> None:
    (folder.write_with_pairs if has_pairs else folder.write)()
    (latency,) = [one for one in folder.upgrade.comparisons if one.quantity == "latency"]
    passed = latency.but(quantity="stalls", of="calls", verdict=Verdict.PASSED)
    terms = Criteria({"latency": 0.03, "stalls": 0.5}, gates=("latency", "stalls"))
    names = folder.upgrade.artifacts
    folder.write(comparisons=[latency, passed], terms=terms, artifacts=names)
    stalls = find(folder.replay().comparisons, "stalls")
    assert stalls.about == "A had 0 calls of 3 times the median or more, B 0, of 1,440 each"
