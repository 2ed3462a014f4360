"""Tests of the options, on the command line and in an ini file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.options import (
    OPTIONS,
    Option,
    is_set,
    read_option,
    read_share,
    source_of,
)


def option(name: str) -> Option:
    return next(option for option in OPTIONS if option.name == name)


def value(pytester: pytest.Pytester, name: str, *arguments: str) -> Any:
    return read_option(pytester.parseconfig(*arguments), option(name))


def test_an_option_has_a_flag_and_a_key() -> None:
    assert option("benchmark_json").flag == "--mlms-benchmark-json"
    assert option("benchmark_json").key == "mlms_benchmark_json"


def test_the_help_shows_a_percent_sign_once(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_subprocess("--help").stdout.str()
    assert text.count("or 3 %)") == 2  # as an option and as an ini key
    assert "%%" not in text


@pytest.mark.parametrize(("text", "share"), [("3 %", 0.03), ("3%", 0.03), ("0.03", 0.03)])
def test_a_share_is_written_with_or_without_percent(text: str, share: float) -> None:
    assert read_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["much", "3 ms", ""])
def test_what_is_no_share_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a share; write it as in '3 %'"):
        read_share(text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("processes", "0", "'0' is not a whole number, 1 or more"),
        ("processes", "1.5", "'1.5' is not a whole number, 1 or more"),
        ("duration", "soon", "'soon' is not a number, 0 or more"),
        ("budget", "nan", "'nan' is not a number, 0 or more"),
        ("worker_timeout", "4", "'4' is not a number, 5 or more"),
        ("timeout", "0", "'0' is not a number, 0.01 or more"),
        ("gate", "latency_p90", "write one as in latency_p90=5%, with one of latency, cpu_time"),
        ("gate", "speed=5%", "'speed=5%' is not a quantity of upgrades with its tolerance"),
        ("gate", "top1=much", "'much' is not a share"),
        ("clock", "sun", "'sun' is not one of adj, cpu, wall, device"),
        ("trace", "soul", "unknown trace level 'soul'; choose from application, model, layer"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_right(name: str, text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        option(name).read(text)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("kernel, layer", ("layer", "kernel")),
        ("model", ("model",)),
        ("none", ()),
        ("", ()),
    ],
)
def test_trace_levels_are_put_into_their_order(text: str, levels: tuple[str, ...]) -> None:
    assert option("trace").read(text) == levels


def test_a_size_has_a_unit(pytester: pytest.Pytester) -> None:
    assert value(pytester, "unpack_limit") == 64 << 30
    assert value(pytester, "unpack_limit", "--mlms-unpack-limit=1.5 MiB") == 3 << 19
    with pytest.raises(argparse.ArgumentTypeError, match="has no unit; write one of B, kB"):
        option("unpack_limit").read("5")


def test_without_a_value_the_default_counts(pytester: pytest.Pytester) -> None:
    assert value(pytester, "processes") == 3
    assert value(pytester, "strict") is False
    assert value(pytester, "stack") == ()
    assert value(pytester, "cache") is None
    assert value(pytester, "results") == pytester.path / "mlms-results"


def test_paths_of_the_command_line_are_below_the_working_directory(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pytester.mkdir("below")
    monkeypatch.chdir(folder)
    assert value(pytester, "cache", "--mlms-cache=../c") == pytester.path / "c"
    assert value(pytester, "predictors", "--mlms-predictors=p") == (folder / "p",)


def test_a_path_may_begin_at_the_home(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/of/joe")
    assert value(pytester, "cache", "--mlms-cache=~/c") == Path("/of/joe/c")


def test_paths_of_the_ini_file_are_below_its_folder(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nmlms_manifests =\n  one\n  two\nmlms_results = r\n")
    monkeypatch.chdir(pytester.mkdir("below"))
    root = f"--rootdir={pytester.path}"
    ini = f"--config-file={pytester.path / 'tox.ini'}"
    found = value(pytester, "manifests", root, ini)
    assert found == (pytester.path / "one", pytester.path / "two")
    assert value(pytester, "results", root, ini) == pytester.path / "r"


def test_the_command_line_overrides_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmlms_trace = layer\nmlms_duration = 5\nmlms_strict = true\n")
    assert value(pytester, "trace") == ("layer",)
    assert value(pytester, "trace", "--mlms-trace=none") == ()
    assert value(pytester, "duration") == 5.0
    assert value(pytester, "duration", "--mlms-duration=2") == 2.0
    assert value(pytester, "strict") is True


def test_a_repeated_option_has_all_its_values(pytester: pytest.Pytester) -> None:
    assert value(pytester, "stack", "--mlms-stack=a", "--mlms-stack=b") == ("a", "b")


def test_an_option_without_its_value_stands_for_the_last_run(pytester: pytest.Pytester) -> None:
    assert value(pytester, "resume", "--mlms-resume") == "latest"
    assert value(pytester, "resume") is None


def test_errors_name_the_flag_or_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmlms_duration = long\nmlms_strict = maybe\n")
    ini = str(Path(pytester.path / "tox.ini"))
    with pytest.raises(pytest.UsageError, match="mlms_duration in .*tox.ini: 'long' is not a"):
        value(pytester, "duration")
    with pytest.raises(pytest.UsageError, match="mlms_strict in .*; write true or false"):
        value(pytester, "strict")
    config = pytester.parseconfig("--mlms-duration=3")
    assert source_of(config, "mlms_duration") == "--mlms-duration"
    assert source_of(config, "mlms_strict") == f"mlms_strict in {ini}"


def test_an_ini_key_that_is_typed_overrides_a_flag_of_addopts(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So sessions of a command push nothing that a project's own settings push."""
    pytester.makeini("[pytest]\naddopts = --mlms-push=http://127.0.0.1:9 --mlms-metrics=own.txt\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--mlms-history=team.sqlite")
    names = ("push", "metrics", "history")
    typed = [f"-omlms_{name}=" for name in names]
    assert all(value(pytester, name) for name in names)
    assert [value(pytester, name, *typed) for name in names] == [None] * 3
    assert value(pytester, "metrics", *typed, "--mlms-metrics=mine.txt").name == "mine.txt"
    long = "--override-ini=mlms_metrics=other.txt"
    config = pytester.parseconfig(long)
    assert value(pytester, "metrics", long).name == "other.txt"
    assert source_of(config, "mlms_metrics") == f"mlms_metrics in {config.inipath}"
    assert not is_set(pytester.parseconfig("-omlms_metrics="), "mlms_metrics")


@pytest.mark.parametrize(
    ("variable", "typed", "expected"),
    [
        ("-omlms_metrics=variable.txt", [], "variable.txt"),
        ("--override-ini mlms_metrics=variable.txt", [], "variable.txt"),
        ("--mlms-metrics=variable.txt", [], "variable.txt"),
        ("-omlms_metrics=variable.txt --mlms-metrics=flag.txt", [], "flag.txt"),
        ("-omlms_metrics=variable.txt", ["--mlms-metrics=typed.txt"], "typed.txt"),
        ("-omlms_metrics=variable.txt", ["-omlms_metrics=typed.txt"], "typed.txt"),
        ("--mlms-metrics=variable.txt", ["-omlms_metrics=typed.txt"], "typed.txt"),
        ("", [], "own.txt"),
    ],
)
def test_addopts_of_the_environment_come_after_those_of_the_ini_file_and_before_what_is_typed(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    typed: list[str],
    expected: str,
) -> None:
    pytester.makeini("[pytest]\naddopts = --mlms-metrics=own.txt\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", variable)
    assert value(pytester, "metrics", *typed).name == expected
