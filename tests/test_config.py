"""Tests of the configuration: its checks, and how it is sent to other hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.config import Config
from pytest_mlms.options import OPTIONS, Option


@pytest.fixture
def manifests(pytester: pytest.Pytester) -> Path:
    folder = pytester.mkdir("manifests")
    (folder / "m.yaml").write_text("name: m")
    return folder


def read(pytester: pytest.Pytester, *arguments: str) -> Config:
    return Config.from_pytest(pytester.parseconfig(*arguments))


def test_options_are_read_into_one_record(pytester: pytest.Pytester, manifests: Path) -> None:
    config = read(pytester, "--mlms-manifests=manifests", "--mlms-processes=5", "--mlms-strict")
    assert config.root == pytester.path
    assert config.manifests == (manifests,)
    assert config.processes == 5
    assert config.strict
    assert not config.upgrade
    assert config.sides == ()


@pytest.mark.parametrize(
    "argument",
    [
        "--mlms-full",
        "--mlms-processes=3",
        "--mlms-duration=1",
        "--mlms-benchmark-json=x.json",
        "--mlms-bencher-json=x.json",
        "--mlms-metrics=x.txt",
        "-omlms_processes=3",
        "-omlms_duration=1",
        "-omlms_full=true",
    ],
)
def test_what_a_person_sets_or_compares_is_measured_in_full(
    pytester: pytest.Pytester, argument: str
) -> None:
    assert read(pytester, argument).measures_in_full


def test_a_comparison_of_hosts_is_measured_in_full(pytester: pytest.Pytester) -> None:
    assert read(pytester, "--mlms-stack=gpu=new", "--mlms-against=gpu=old").measures_in_full


def test_a_performance_item_may_end_early_unless_it_is_asked_for_more(
    pytester: pytest.Pytester,
) -> None:
    assert not read(pytester).measures_in_full
    assert not read(pytester, "--mlms-budget=30").measures_in_full
    packed = read(pytester, "--mlms-duration=1").pack(str)
    assert packed["full"] is True
    for option in ("--mlms-history=h.sqlite", "--mlms-push=http://127.0.0.1:9"):
        packed = read(pytester, option).pack(str)
        assert (packed["full"], packed["history"], packed["push"]) == (True, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mlms-manifests=nowhere"], "there is no .*nowhere; name a folder that exists"),
        (["--mlms-predictors=nowhere"], "--mlms-predictors: there is no .*nowhere"),
        (["--mlms-manifests=notes.txt"], "notes.txt is no .yaml file; name a manifest"),
        (["--mlms-manifests=empty"], "empty has no .yaml file; name a manifest"),
        (["--mlms-results=notes.txt/r"], "notes.txt is a file; name a folder"),
        (["--mlms-cache=notes.txt/c"], "--mlms-cache: .*notes.txt is a file; name a folder"),
        (
            ["--mlms-benchmark-json=none/x.json"],
            "--mlms-benchmark-json: there is no folder .*none; make it",
        ),
        ([f"--mlms-manifests={'x' * 300}"], "there is no .*x; name a folder that exists"),
        ([f"--mlms-report={'x' * 300}/r.html"], "--mlms-report: there is no folder .*x; make it"),
        (
            ["--mlms-metrics=/dev/null"],
            "--mlms-metrics: /dev/null is a device, a pipe or a socket;",
        ),
        (["--mlms-benchmark-json=empty"], "--mlms-benchmark-json: .*empty is a folder; name a"),
        (["--mlms-trace-functions=libc:read"], "write --mlms-trace=library, too"),
        (
            ["--mlms-trace-functions=libc:read", "--mlms-trace=layer"],
            "write --mlms-trace=layer,library, too",
        ),
        (["--mlms-model=m.onnx", "notes.txt"], "--mlms-model: only notes.txt is collected; leave"),
        (["--mlms-aa", "--mlms-gate=top1=1%", "--mlms-gate=top1=0"], "top1 has two tolerances"),
        (
            ["--mlms-aa", "--mlms-gate=latency=1%", "--mlms-tolerance=5%"],
            "latency has two tolerances; leave out one --mlms-gate or --mlms-tolerance",
        ),
        (
            ["--mlms-stack=gpu=new"],
            r"gpu=new is a label of hosts: .* \(a version has two signs: gpu==new\)",
        ),
        (["--mlms-stack=gpu=new", "--mlms-against=here"], "gpu=new is a label of hosts"),
        (
            ["--mlms-stack=gpu=new", "--mlms-against=gpu=old", "--mlms-gate=top1=1%"],
            "--mlms-gate: two hosts aren't compared by top1, but by latency, throughput, start_",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(
    pytester: pytest.Pytester, arguments: list[str], message: str
) -> None:
    (pytester.mkdir("empty") / "below").mkdir()
    pytester.path.joinpath("notes.txt").write_text("no manifest")
    with pytest.raises(pytest.UsageError, match=message):
        read(pytester, *arguments)


_TYPED = {"gate": "latency=5%", "tolerance": "5%", "clock": "cpu", "rounds": "6", "trace": "layer"}
_SET = {
    "upgrade": ["--mlms-aa"],
    "sides": ["--mlms-stack=gpu=new", "--mlms-against=gpu=old"],
    "push": ["--mlms-push=http://localhost:1"],
}
_DEPENDENT = [option for option in OPTIONS if option.needs or option.not_with]


def typed(option: Option) -> str:
    """Return an option as it is typed, with the value that it stands for without one, if any."""
    if option.is_switch or option.bare is not None:
        return option.flag
    return f"{option.flag}={_TYPED.get(option.name, '1')}"


@pytest.mark.parametrize("option", _DEPENDENT, ids=lambda option: option.name)
def test_an_option_that_would_do_nothing_is_refused_where_it_is_typed(
    pytester: pytest.Pytester, option: Option
) -> None:
    refused: list[list[str]] = [[]] if option.needs else [_SET[name] for name in option.not_with]
    accepted: list[list[str]] = [_SET[name] for name in option.needs] or [[]]
    for others in refused:
        with pytest.raises(pytest.UsageError, match=f"{option.flag}: it does nothing (in|without)"):
            read(pytester, typed(option), *others)
    for others in accepted:
        read(pytester, typed(option), *others)
    pytester.makeini(f"[pytest]\naddopts = {typed(option)}\n")
    for others in refused:
        read(pytester, *others)


def test_pytest_may_be_called_with_paths_that_are_no_text(pytester: pytest.Pytester) -> None:
    tests = pytester.makepyfile("def test_it():\n    pass\n")
    main = pytester.makepyfile(
        main=f"""
        import sys
        from pathlib import Path

        import pytest

        sys.exit(pytest.main(["-q", Path({str(tests)!r})]))
        """
    )
    assert pytester.runpython(main).ret == pytest.ExitCode.OK


def test_every_option_of_upgrades_alone_says_so() -> None:
    dependent = {option.name for option in _DEPENDENT}
    assert dependent >= {"gate", "tolerance", "clock", "upgrade_report", "rounds", "outputs"}
    assert dependent >= {"push_token_file", "loadgen", "trace", "trace_on_fail", "benchmark_json"}


def test_functions_in_the_ini_file_wait_for_a_run_that_traces_their_level(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\nmlms_trace_functions = libc:read\n")
    assert read(pytester).trace_functions == ("libc:read",)


def test_against_a_stack_cases_become_upgrades(pytester: pytest.Pytester) -> None:
    config = read(pytester, "--mlms-stack=new", "--mlms-against=old")
    assert config.upgrade
    assert config.sides == ()
    assert read(pytester, "--mlms-aa").upgrade


def test_two_labels_of_hosts_are_the_sides(pytester: pytest.Pytester) -> None:
    config = read(pytester, "--mlms-stack=driver=570", "--mlms-against=driver=560")
    assert config.sides == ("driver=570", "driver=560")
    assert not config.upgrade


def test_a_worker_on_another_host_has_the_options_with_its_own_paths(
    pytester: pytest.Pytester, manifests: Path
) -> None:
    arguments = ["--mlms-manifests=manifests", "--mlms-trace=layer", "--mlms-budget=5"]
    sent = replace(read(pytester, *arguments), cache=None)
    packed = sent.pack(lambda path: path.relative_to(pytester.path).as_posix())
    assert json.loads(json.dumps(packed))["manifests"] == {"paths": ["manifests"]}
    worker = pytester.parseconfig(f"--rootdir={pytester.mkdir('remote')}")
    worker.__dict__["workerinput"] = {"mlms_options": packed}
    received = Config.from_pytest(worker)
    remote = pytester.path / "remote"
    expected = replace(
        sent,
        root=remote,
        manifests=(remote / "manifests",),
        results=remote / "mlms-results",
    )
    assert vars(received) == vars(expected)


def test_a_lock_file_is_the_baseline_of_each_item(pytester: pytest.Pytester) -> None:
    lock = pytester.path / "mlms.lock"
    lock.write_text("format = 1\n")
    config = read(pytester, "--mlms-against=lock", "--mlms-against=old")
    assert config.upgrade
    assert (config.lock, config.baselines) == (lock, ("old",))
    assert config.pack(lambda path: path.name)["lock"] == {"path": "mlms.lock"}
    other = pytester.path / "old.lock"
    other.write_text("format = 1\n")
    assert read(pytester, "--mlms-against=lock:old.lock").lock == other
    assert read(pytester, "--mlms-against=old").lock is None


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["lock"], "there is no .*mlms.lock; write it by 'mlms lock write'"),
        (["lock:none.lock"], "--mlms-against lock:none.lock: there is no .*none.lock"),
        (["lock:a", "lock:b"], "lock:a and lock:b are two lock files; name one"),
    ],
)
def test_a_lock_file_must_be_there(
    pytester: pytest.Pytester, values: list[str], problem: str
) -> None:
    with pytest.raises(pytest.UsageError, match=problem):
        read(pytester, *[f"--mlms-against={value}" for value in values])


@pytest.mark.parametrize(
    ("text", "rounds"), [("24", (None, 24)), ("11-24", (11, 24)), ("3", (None, 3))]
)
def test_rounds_are_the_most_or_the_least_and_the_most(
    pytester: pytest.Pytester, text: str, rounds: tuple[int | None, int]
) -> None:
    config = read(pytester, "--mlms-aa", f"--mlms-rounds={text}")
    assert config.rounds == rounds
    assert config.pack(str)["rounds"] == rounds


@pytest.mark.parametrize("text", ["2", "24-11", "2-5", "many", "-"])
def test_rounds_that_are_none_are_refused(pytester: pytest.Pytester, text: str) -> None:
    with pytest.raises(pytest.UsageError, match="nor a least and a most one"):
        read(pytester, f"--mlms-rounds={text}")
