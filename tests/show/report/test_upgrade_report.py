"""Tests of the report on a regressed upgrade."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_mlms.explain.bisect.judgement import Judgement
from pytest_mlms.explain.bisect.question import End, Question
from pytest_mlms.explain.bisect.record import Conclusion, Probe, Record
from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.show.report.upgrade_report import Evidence, item_report, upgrade_report
from tests.support.result_lines import HOSTILE, line_of, upgrade
from tests.support.views import view_of, views_of

RESULTS = "mlms-results/20261124-000118-387842"
NODEID = "models/m.yaml::test_upgrade[onnxruntime-1.31.0-vs-onnxruntime-1.30.0-cpu-b8]"
RELEASES = "`onnxruntime 1.31.0` with `flatbuffers 25.9`"
MACHINE = {
    "host": "secret-host",
    "system": "Linux 6.1.0",
    "kernel": "#1 SMP joe@secret-host",
    "architecture": "x86_64",
    "cpu": {"model": "AMD EPYC", "microarchitecture": "zen4", "vendor": "AuthenticAMD"},
    "cores": {"physical": 2, "logical": 4},
    "memory": 8 << 30,
    "gpus": [{"name": "NVIDIA H100", "uuid": "GPU-secret", "driver": "570.1"}],
    "gpu_driver": "570.1",
}


def side(version: str) -> dict[str, Any]:
    return {"versions": {"onnxruntime": version, "numpy": "2.4.6"}, "python": "3.11.7"}


def regressed(**fields: Any) -> dict[str, Any]:
    """Return the line of an upgrade with everything that a report tells."""
    sides = {"a": side("1.30.0"), "b": side("1.31.0")}
    line = {
        **upgrade(),
        "nodeid": NODEID,
        "device": "cpu",
        "batch_size": 8,
        "against": {"name": "onnxruntime-1.30.0"},
        "clock": "adj",
        "rounds": [{"sides": sides, "pairs": 80}] * 3,
        "launch": {"lock": ["onnxruntime==1.31.0", "flatbuffers==25.9", "pip==26"]},
        "launch_against": {"lock": ["onnxruntime==1.30.0", "flatbuffers==25.2", "pip==25"]},
        "layers": [
            ["conv", "Conv", 1e-5, 3e-5, 2e-5, 1.0],
            ["all layers", "", 1e-5, 3e-5, 2e-5, 1.0],
        ],
        "machine": MACHINE,
    }
    return {**line, **fields}


def report(evidence: Evidence | None = None, **fields: Any) -> str:
    return item_report(view_of(regressed(**fields)), RESULTS, evidence)


def test_the_report_names_what_regressed_in_which_release_and_how_surely() -> None:
    text = report()
    title, *_ = text.splitlines()
    assert title == f"# {RELEASES}: latency ×1.079 (1.071 to 1.088) against `1.30.0`"
    assert "Model `digits`, `onnxruntime`, `cpu, batch size 8`;" in text
    assert "| latency  | REGRESSED | 264 µs | 285 µs | ×1.079 (1.071 to 1.088) | 3 % " in text
    assert "| `conv`       | `Conv` | 10.0 µs | 30.0 µs | +20.0 µs | 100 % |" in text


def test_packages_that_differ_are_listed_and_versions_that_are_alike() -> None:
    text = report()
    assert "| `onnxruntime` | `1.30.0`  | `1.31.0` |" in text
    assert "| `flatbuffers` | `25.2`    | `25.9`   |" in text
    assert "Alike on both sides: `numpy` `2.4.6`, `Python` `3.11.7`." in text
    assert "`pip`" not in text


def test_the_machine_has_no_name() -> None:
    text = report(message="secret-host said")
    assert "| CPU        | `AMD EPYC, zen4`" in text
    assert "`2 physical, 4 logical`" in text
    assert "`8.00 GiB`" in text
    assert "`NVIDIA H100`" in text
    assert "| GPU driver | `570.1`" in text
    assert "secret" not in text
    assert "joe" not in text


def test_commands_are_those_of_this_item() -> None:
    text = report()
    assert f"mlms repro '{RESULTS}::{NODEID}' --out repro.zip\n" in text
    assert f"mlms repro '{RESULTS}::{NODEID}' --without-model --out repro-random.zip\n" in text
    assert (
        "mlms culprit 'models/m.yaml::test_upgrade[cpu-b8]' --good onnxruntime==1.30.0 "
        "--bad onnxruntime==1.31.0 --quantity latency\n"
    ) in text


def test_an_upgrade_under_load_is_bisected_under_it_and_has_no_bundle() -> None:
    compared = {**upgrade()["comparisons"][0], "quantity": "query_latency"}
    text = report(comparisons=[compared], scenario="server", load={"percentile": 99})
    assert "test_upgrade[cpu-b8-server]" in text
    assert "--quantity query_latency" in text
    assert "mlms repro" not in text
    assert "mlms reduce" not in text


def test_a_framework_that_reads_no_onnx_has_no_commands_that_take_one() -> None:
    text = report(framework="jax")
    assert f"mlms repro '{RESULTS}::{NODEID}' --out repro.zip\n" in text
    assert "--without-model" not in text
    assert "mlms reduce" not in text


def test_options_of_the_session_are_those_of_each_command_and_name_no_place() -> None:
    text = report(culprit_options=["--mlms-predictors=/home/joe/own", "--mlms-cache=cache"])
    assert "--out repro.zip --mlms-predictors=own --mlms-cache=cache\n" in text
    assert "--quantity latency --mlms-predictors=own --mlms-cache=cache\n" in text
    assert "joe" not in text


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (
            {"launch": {"packages": ["onnxruntime==1.31.0 # editable file:///home/joe/ort"]}},
            "as onnxruntime of B was installed from a folder; declare a stack",
        ),
        ({"culprit_lacking": "the sides have other indexes"}, "the sides have other indexes; de"),
        ({"launch": {}, "launch_against": {}}, "none that pip lists in A, and none that pip"),
    ],
)
def test_what_no_index_has_on_both_sides_is_searched_in_none(
    fields: dict[str, Any], found: str
) -> None:
    text = report(**fields)
    assert "mlms culprit" not in text
    assert "joe/" not in text
    assert found in text


def test_a_tolerance_of_the_command_line_is_one_of_the_command() -> None:
    terms = {"places": {"latency": "--mlms-tolerance"}}
    assert "--quantity latency --tolerance '3 %'\n" in report(terms=terms)


def test_a_bundle_that_is_attached_takes_the_place_of_commands_that_make_one() -> None:
    evidence = Evidence(
        bundle="repro.zip",
        reduced="1 of 66 nodes",
        model=["y = MaxPool <ceil_mode: int = 1> (x)"],
        checked="×1.2 slower",
    )
    text = report(evidence)
    assert "\n```\ny = MaxPool <ceil_mode: int = 1> (x)\n```\n" in text
    assert "`repro.zip` is attached. It needs Python 3.10 or later and pip:" in text
    assert "Its model is a part of the whole one: `1 of 66 nodes`\n" in text
    assert "Replayed on this machine: `×1.2 slower`\n" in text
    assert "python repro.zip " in text
    assert "mlms repro" not in text


@pytest.mark.parametrize("path", ["/home/joe/m.yaml", "../../joe/m.yaml"])
def test_a_manifest_outside_of_the_root_is_named_without_its_folders(path: str) -> None:
    text = report(nodeid=f"{path}::test_upgrade[/home/joe/venv/bin/python-vs-old-cpu-b8]")
    assert "joe" not in text
    assert f"{RESULTS}::m.yaml::test_upgrade[PATH" in text


def test_paths_and_addresses_in_messages_are_left_out() -> None:
    fields: dict[str, Any] = {
        "verdict": "ERROR",
        "comparisons": [],
        "rounds": [],
        "message": "new: Load from /home/joe/x.onnx failed\nhttps://joe:pw@corp/x in model.cc:3",
        "launch": {"packages": ["own @ file:///home/joe/own", "onnxruntime==1.31.0"]},
        "launch_against": {"packages": ["own==1", "onnxruntime==1.30.0"]},
    }
    text = report(**fields)
    assert text.startswith(
        "# `onnxruntime 1.31.0` with `own PATH`: it fails, and `1.30.0` does not\n"
    )
    assert "new: Load from PATH failed\nADDRESS in model.cc:3\n" in text
    assert "| `own`         | `1`       | `PATH`   |" in text
    assert "joe" not in text


@pytest.mark.parametrize("options", [{}, {"graph_optimization_level": 1}])
def test_no_command_that_compares_releases_alone_is_told_where_options_differ(
    options: dict[str, Any],
) -> None:
    text = report(
        options={"graph_optimization_level": 9}, against={"name": "b", "options": options}
    )
    assert "its sides differ in settings of their stacks" in text
    assert "mlms culprit" not in text


def test_wrong_outputs_come_before_times_and_are_a_multiple() -> None:
    (latency,) = upgrade()["comparisons"]
    nothing = dict.fromkeys(("a", "b", "floor", "detectable"))
    agreement = {**latency, **nothing, "quantity": "agreement", "ratio": 12.5, "of": "outputs"}
    agreement["lacking"] = "'y' has NaN | or infinity"
    lines = ["row 3: label 5, class 5 -> 6", "row 17: label 1"]
    text = report(comparisons=[latency, agreement], worse_inputs=lines)
    assert text.splitlines()[0] == f"# {RELEASES}: other outputs than in `1.30.0`"
    assert "| outputs differ by up to 12.5 times what is allowed |" in text
    assert "`agreement`: `'y' has NaN | or infinity`" in text
    assert "by number, the worst first: 3, 17.\n" in text
    assert "--quantity agreement\n" in text


def test_the_operator_that_gives_other_outputs_is_in_the_title() -> None:
    (latency,) = upgrade()["comparisons"]
    agreement = {**latency, "quantity": "agreement", "ratio": 3.0, "of": "outputs"}
    title, *_ = report(Evidence(operator="MaxPool"), comparisons=[agreement]).splitlines()
    assert title == f"# {RELEASES}: `MaxPool` gives other outputs than in `1.30.0`"


def test_a_candidate_that_fails_is_said_to_in_the_title() -> None:
    (latency,) = upgrade()["comparisons"]
    title, *_ = report(comparisons=[{**latency, "quantity": "crash", "ratio": None}]).splitlines()
    assert title == f"# {RELEASES}: it fails, and `1.30.0` does not"


GROWTH = {"quantity": "soak_growth", "max": 100.0, "place": "m.yaml:9", "verdict": "REGRESSED"}
GROWN = {"value": 5000.0, "low": 4900.0, "high": 5100.0, "confidence": 0.99, "unit": "B"}


def test_a_soak_is_reported_by_its_limits_and_has_no_commands_of_an_upgrade() -> None:
    growth: dict[str, Any] = {
        "limits": [GROWTH],
        "estimates": {"soak_growth": {**GROWN, "replicates": 200}},
    }
    message = "m.yaml:9: digits: soak_growth is not at most 100 B\nreproduce: pytest -k soak"
    soak: dict[str, Any] = {
        "kind": "soak",
        "comparisons": [],
        "rounds": [],
        "layers": [],
        "message": message,
    }
    text = report(**soak, **growth)
    title, *_ = text.splitlines()
    measured = "4.88 KiB (4.79 KiB to 4.98 KiB)"
    assert title == f"# {RELEASES}: soak growth {measured} beyond that of `1.30.0`"
    assert f"| soak growth | REGRESSED | {measured} |" in text
    assert "a bundle has too few calls" in text
    for other in ("mlms repro", "mlms culprit", "reproduce:", "m.yaml"):
        assert other not in text


def test_a_soak_whose_line_lacks_its_limits_is_reported_by_its_message() -> None:
    text = report(kind="soak", comparisons=[], limits=[], rounds=[], message="soak_growth")
    assert "REGRESSED against `1.30.0`, nothing was compared" in text.partition("\n")[0]
    assert "soak_growth" in text


def test_a_crash_of_a_soak_is_told_without_advice_on_files_of_the_run() -> None:
    (latency,) = upgrade()["comparisons"]
    problem = "onnxruntime can't be imported in stack new; change its requirements at s.yaml:9"
    reason = f"{problem}: 'hello' raised ImportError (log: logs/b.log)"
    crash = {**latency, "quantity": "crash", "ratio": None, "lacking": reason}
    for kind, where in (("soak", " in a soak"), ("upgrade", "")):
        text = report(kind=kind, comparisons=[crash])
        title, *_ = text.splitlines()
        assert title == f"# {RELEASES}: it fails{where}, and `1.30.0` does not"
        assert "`onnxruntime can't be imported in stack new: 'hello' raised ImportError`" in text


def test_what_a_regression_left_open_is_left_out() -> None:
    (latency,) = upgrade()["comparisons"]
    agreement = {**latency, "quantity": "agreement", "ratio": 3.0, "of": "outputs"}
    undecided = {**latency, "verdict": "INCONCLUSIVE", "lacking": "needs 3 rounds, had 1"}
    text = report(comparisons=[agreement, undecided])
    assert "needs 3 rounds" not in text
    assert "is 1 % at most" not in text  # outputs are no sample
    assert "needs 3 rounds" in report(comparisons=[undecided], verdict="INCONCLUSIVE")


def test_inputs_of_a_dataset_of_files_are_counted_without_their_names() -> None:
    text = report(worse_inputs=["patients/joe.png: label 5", "b.png: label 3"])
    assert "Inputs that got worst: 2, whose names are left out." in text
    assert "png" not in text


def test_what_is_not_known_is_left_out() -> None:
    line = {**upgrade(), "framework": "mxnet", "comparisons": []}
    text = item_report(view_of(line), RESULTS)
    assert text.splitlines()[0] == "# `here`: REGRESSED against the baseline, nothing was compared"
    assert "No package is known to differ." in text
    assert "## Machine" not in text
    assert "mlms culprit" not in text


def test_not_a_number_is_a_dash() -> None:
    (latency,) = upgrade()["comparisons"]
    unknown = {**latency, "a": None, "b": None, "ratio": None, "low": None, "high": None}
    text = report(comparisons=[unknown], layers=[["x", "", None, None, math.nan, None]])
    assert re.search(r"latency +\| REGRESSED \| - +\| - +\| - ", text)
    assert "nan" not in text


def test_hostile_names_are_shown_and_never_interpreted() -> None:
    hostile = {"path": "m.yaml", "name": HOSTILE, "version": HOSTILE}
    layers = [[HOSTILE, HOSTILE, 1e-5, 3e-5, 2e-5, 1.0]]
    stack = {"name": HOSTILE}
    text = report(manifest=hostile, layers=layers, layers_lacking=HOSTILE, stack=stack)
    (row,) = [line for line in text.splitlines() if "10.0 µs" in line]
    assert row.count("\\|") == 2
    assert row.count("|") - row.count("\\|") == 7
    outside = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert "<script>" in text
    assert "<script>" not in outside
    assert "\n::error" not in text


def test_a_run_has_a_report_for_each_regressed_upgrade_and_no_other() -> None:
    lines = [regressed(), line_of(2), regressed(nodeid="b"), {**upgrade(3), "verdict": "PASSED"}]
    text = upgrade_report(views_of(lines), RESULTS)
    assert text.count("# `onnxruntime 1.31.0`") == 2
    assert text.count("\n---\n") == 1


def test_a_run_without_a_regressed_upgrade_tells_what_became_of_them() -> None:
    verdicts = ("PASSED", "ERROR", "INCONCLUSIVE", "PASSED")
    lines = [{**upgrade(number), "verdict": verdict} for number, verdict in enumerate(verdicts)]
    none = upgrade_report(views_of([*lines, line_of(9)]), RESULTS, but=", but it has not ended")
    counts = "1 with errors, 1 undecided, 2 passed"
    assert none == f"No upgrade is REGRESSED: {counts} in this run, but it has not ended.\n"


def test_the_culprit_of_a_bisection_is_told_with_all_judgements() -> None:
    text = report(Evidence(bisection=bisection(), departing="pool (MaxPool)"))
    assert (
        "latency became worse in onnxruntime 1.30.1: ×1.100 (1.090 to 1.110) beside 1.30.0" in text
    )
    assert (
        "<details><summary>All judgements of the bisection</summary>\n\n```\n  1.30.1 against"
        in text
    )
    assert "## First departing layer\n\n`pool (MaxPool)`\n" in text


def test_the_report_is_about_the_quantity_that_was_searched() -> None:
    (searched,) = upgrade()["comparisons"]
    searched["verdict"] = "INCONCLUSIVE"
    worse = {**searched, "quantity": "peak_memory", "verdict": "REGRESSED", "unit": "B"}
    text = report(Evidence(bisection=bisection()), comparisons=[searched, worse])
    title, *_ = text.splitlines()
    change = "latency ×1.079 (1.071 to 1.088) against `1.30.0`, INCONCLUSIVE"
    assert title == f"# {RELEASES}: {change}"
    assert "| latency     | INCONCLUSIVE |" in text
    assert "| peak memory | REGRESSED    |" in text


def bisection() -> Record:
    judged = Judgement(
        Outcome.BAD, "latency", "REGRESSED", unit="s", of="rounds", ratio=1.1, low=1.09, high=1.11
    )
    names = ("onnxruntime-1.30.0", "onnxruntime-1.30.1")
    return Record(
        question=question(),
        quantity="latency",
        package="onnxruntime",
        releases=["1.30.0", "1.30.1", "1.31.0"],
        probes=[Probe(*names, "neighbours", 2, judged)],
        answer=Conclusion("found", *names, "onnxruntime", "1.30.0", "1.30.1", (), (), judged),
    )


def question(ends: Sequence[str] = ("a", "b")) -> Question:
    good, bad = map(End, ends)
    return Question("m.yaml", "onnxruntime", "cpu", 8, {}, None, good, bad, None, None, (), "x")
