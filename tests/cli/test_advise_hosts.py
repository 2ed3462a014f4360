"""``mlms advise --hosts``: the cheapest host by a history, and what the history doesn't know."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from pytest_mlms.cli.main import main
from pytest_mlms.evaluation import evaluate
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.store import open_history
from tests.support.histories import run_lines, run_name, write_lines
from tests.support.project import QUICK, copy_digits

Run = Callable[..., tuple[int, str, str]]
PRICE = ("--objective", "min price", "--batch-sizes", "8")
LIMIT = ("--subject-to", "latency_p50 <= 10 s, top1 >= 75 %")


class Ran(NamedTuple):
    """A host in the history: its CPU, by what its times are multiplied, and how often it ran."""

    cpu: str
    times: float
    runs: int


FLEET = {
    "slow": Ran("Slow", 1.0, 8),
    "fast": Ran("Fast", 0.25, 8),
    "twin": Ran("Fast", 0.25, 1),
    "noisy": Ran("Noisy", 1.0, 8),
    "new": Ran("New", 0.1, 1),
}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The lines of the items of a run of digits here."""
    folder = tmp_path_factory.mktemp("run")
    manifest = write_manifest(folder)
    found = evaluate(manifest, "-k", "test_performance or test_accuracy", *QUICK, results=folder)
    return [{**line} for line in found]


def write_manifest(folder: Path, **keys: Any) -> Path:
    """Write the manifest of digits with one batch size, and without limits, into a new folder."""
    path = copy_digits(folder / "m")
    manifest = yaml.safe_load(path.read_text())
    evaluated = {"batch_sizes": [8], "scenarios": ["offline"], "threads": 1}
    manifest |= {"evaluate": evaluated, "thresholds": {}, **keys}
    path.write_text(yaml.safe_dump(manifest, sort_keys=False))
    return path


def add_fleet(lines: list[dict[str, Any]], fleet: Mapping[str, Ran], first: int = 0) -> None:
    """Add the runs of a fleet to h.sqlite, whose times scatter by 1 %; those of "noisy" by 60 %."""
    history = open_history("h.sqlite")
    scatter = random.Random(7)
    nights = [(name, ran) for name, ran in fleet.items() for _ in range(ran.runs)]
    for night, (name, ran) in enumerate(nights, first):
        head, end = run_lines(night, items=0)
        spread = 0.6 if name == "noisy" else 0.01
        items = [line_of(line, name, ran, scatter.lognormvariate(0, spread)) for line in lines]
        for item in items:
            item |= {"run": run_name(night), "time": head["time"]}
        write_lines(Path("runs", run_name(night)), [head, *items, end])
        add_run(history, Path("runs", run_name(night)))
    history.dispose()


def line_of(line: dict[str, Any], host: str, ran: Ran, noise: float) -> dict[str, Any]:
    line = copy.deepcopy(line)
    cpu = {**(line["machine"].get("cpu") or {}), "model": ran.cpu}
    line["machine"] |= {"host": host, "cpu": cpu}
    factors = {"s": ran.times * noise, "/s": 1 / ran.times / noise}
    for estimate in line["estimates"].values():
        for key in ("value", "low", "high", "less_wait"):
            if estimate.get(key) is not None:
                estimate[key] *= factors.get(estimate["unit"], 1.0)
    return line


@pytest.fixture
def run(
    lines: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """A function that asks the history of a fleet about digits on hosts with these prices."""
    monkeypatch.chdir(tmp_path)
    write_manifest(tmp_path)
    add_fleet(lines, FLEET)

    def advise(prices: Mapping[str, Any], *words: str) -> tuple[int, str, str]:
        hosts = {name: {"price": price} if price else None for name, price in prices.items()}
        Path("hosts.yaml").write_text(yaml.safe_dump({"hosts": hosts}, sort_keys=False))
        asked = ["advise", "m/digits.yaml", "--hosts", "hosts.yaml", "--history", "h.sqlite"]
        try:
            status = main([*asked, *words])
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return advise


def rate(lines: list[dict[str, Any]]) -> float:
    """Return the inputs per second of the run that the history was made of."""
    (timed,) = [line for line in lines if line["kind"] == "performance"]
    return float(timed["estimates"]["throughput"]["value"])


def test_the_cheapest_host_is_found_and_its_price_is_right(
    run: Run, lines: list[dict[str, Any]]
) -> None:
    status, output, errors = run({"slow": "1 USD/h", "fast": "2 USD/h"}, *PRICE, *LIMIT)
    assert status == 0, output + errors
    assert "onnxruntime b8 t1 on fast is the best within the limits by the history" in output
    shown = float(re.search(r"fast +best +([\d.]+)", output)[1])  # type: ignore[index]
    right = 2 / 3600 * 1e6 / (rate(lines) / FLEET["fast"].times)
    assert shown == pytest.approx(right, rel=0.02)
    assert "in USD" in errors
    assert "# on fast: Fast" in output
    section = yaml.safe_load(output[output.index("# in m/digits.yaml") :])
    assert section["evaluate"]["batch_sizes"] == [8]


def test_a_fast_host_that_costs_more_than_it_saves_is_not_the_cheapest(run: Run) -> None:
    status, output, _ = run({"slow": "1 USD/h", "fast": "5 USD/h"}, *PRICE)
    assert status == 0
    assert "on slow is the best" in output
    status, output, _ = run({"slow": None, "fast": None}, "--objective", "max throughput")
    assert status == 0
    assert "on fast is the best" in output


def test_prices_within_the_noise_have_no_winner(run: Run) -> None:
    status, output, _ = run({"slow": "1 USD/h", "noisy": "1 USD/h"}, *PRICE)
    assert status == 0
    assert "is shown to fit, but not to be the best" in output
    assert "can't be told from it: digits-cnn onnxruntime b8 t1 on" in output


def test_what_the_history_does_not_know_is_said(run: Run) -> None:
    prices = {"slow": "1 USD/h", "new": "1 USD/h", "gone": "1 USD/h", "fast": None}
    status, output, _ = run(prices, *PRICE)
    assert status == 0
    assert "on new: the history has a single run" in output
    assert "on gone: the history has no run on gone" in output
    assert "on fast: fast has no price in the file" in output
    (line,) = [line for line in output.splitlines() if line.startswith("may fit and be better")]
    assert all(f"on {name}" in line for name in ("new", "gone", "fast"))
    words = ("--objective", "min price", "--batch-sizes", "4")
    status, output, _ = run({"slow": "1 USD/h"}, *words)
    assert status == 1
    assert "the history has no throughput of it on Slow" in output
    assert "run pytest on these hosts" in output


def test_runs_before_a_change_say_nothing_of_a_host_today(
    run: Run, lines: list[dict[str, Any]]
) -> None:
    add_fleet(lines, {"changed": Ran("Changed", 0.25, 8)}, first=100)
    add_fleet(lines, {"changed": Ran("Changed", 2.0, 1)}, first=200)
    prices = {"slow": "1 USD/h", "changed": "1 USD/h"}
    status, output, _ = run(prices, *PRICE)
    assert status == 0
    assert "a single run since its throughput changed" in output
    assert "on slow is shown to fit, but not to be the best" in output
    add_fleet(lines, {"changed": Ran("Changed", 2.0, 2)}, first=300)
    status, output, _ = run(prices, *PRICE)
    assert "on slow is the best within the limits by the history" in output
    assert "runs from 2026-01-01 to 2026-01-08, those of others from 2026-07" in output


def test_hosts_of_one_class_share_their_runs_and_the_cheaper_one_counts(run: Run) -> None:
    prices = {"fast": "2 USD/h", "twin": "1.9 USD/h", "slow": "1 USD/h"}
    status, output, errors = run(prices, *PRICE)
    assert status == 0
    assert "on fast is left out: twin is of the same class, and cheaper" in errors
    assert "on twin is the best" in output


def test_a_limit_that_the_history_breaks_leaves_a_host_out(
    run: Run, lines: list[dict[str, Any]]
) -> None:
    limit = f"throughput >= {2 * rate(lines):.0f} /s"
    prices = {"slow": "0.01 USD/h", "fast": "2 USD/h"}
    status, output, _ = run(prices, *PRICE, "--subject-to", limit)
    assert status == 0
    assert "on fast is the best" in output
    status, output, _ = run(prices, *PRICE, "--subject-to", "top1 >= 99.99 %")
    assert status == 1
    assert "on fast" not in output.partition("\n\n")[2]


def test_a_gpu_that_the_manifest_names_is_known_by_its_own_runs(
    run: Run, lines: list[dict[str, Any]]
) -> None:
    evaluated = {"batch_sizes": [8], "scenarios": ["offline"], "threads": 1}
    Path("m/digits.yaml").write_text(
        yaml.safe_dump(
            {
                **yaml.safe_load(Path("m/digits.yaml").read_text()),
                "evaluate": {**evaluated, "devices": ["cpu", "cuda:0"]},
            },
            sort_keys=False,
        )
    )
    on_gpu = [{**line, "device": "cuda:0"} for line in copy.deepcopy(lines)]
    for line in on_gpu:
        line["machine"]["gpus"] = [{"name": "H200"}]
    add_fleet(on_gpu, {"gpu1": Ran("Host", 0.01, 8)}, first=100)
    status, output, errors = run({"slow": "1 USD/h", "gpu1": "9 USD/h"}, *PRICE)
    assert status == 0, output + errors
    assert "cuda:0 b8 t1 on gpu1 is shown to fit, but not to be the best: the history" in output
    assert "onnxruntime b8 t1 on gpu1: the history has no run on gpu1" in output
    assert "cuda:0 b8 t1 on slow" not in output  # which has no GPU
    assert "# on gpu1: Host" in output
    assert "H200" in output
    assert yaml.safe_load(output[output.index("# in m/") :])["evaluate"]["devices"] == ["cuda:0"]
    on_cpu = [{**line, "device": "cpu"} for line in on_gpu]
    add_fleet(on_cpu, {"gpu1": Ran("Host", 1.0, 20)}, first=200)  # hundreds of newer points
    status, output, errors = run({"slow": "1 USD/h", "gpu1": "9 USD/h"}, *PRICE)
    assert "cuda:0 b8 t1 on gpu1 is the best within the limits by the history" in output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hosts: {a: {price: 2}}", "hosts.yaml:1: 2 is no price of an hour above 0"),
        ("hosts: {a: {price: 0 USD/h}}", "is no price of an hour above 0"),
        ("hosts:\n  a: {price: 1 USD/h}\n  b: {price: 1 EUR/h}", "hosts.yaml:1: prices in EUR and"),
        ("hosts:\n  a: {cost: 1 USD/h}", "hosts.yaml:2: a has something else than a price"),
        ("hosts: {}", "it has no hosts"),
        ("fleet: {a: {}}", "there is a key fleet"),
        ("hosts: [a]", "it has no hosts"),
        ("[", "hosts.yaml:2: is not YAML"),
    ],
)
def test_a_mistake_in_the_file_of_hosts_is_told_with_its_line(
    run: Run, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    Path("bad.yaml").write_text(text)
    words = ["advise", "m/digits.yaml", "--hosts", "bad.yaml", "--history", "h.sqlite", *PRICE]
    assert main(words) == 2
    assert told.replace("hosts.yaml", "bad.yaml") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--hosts", "h.yaml", "--objective", "min price"], "name one by --history"),
        (["--objective", "min price"], "name their file by --hosts"),
        (["--objective", "max price", "--hosts", "h.yaml", "--history", "h"], "'price'"),
        (["--hosts", "h.yaml", "--history", "h.sqlite", *PRICE, "--budget", "1min"], "--budget is"),
        (["--hosts", "h.yaml", "--history", "h.sqlite", *PRICE, "--replay", "r"], "--replay is"),
        (["--hosts", "no.yaml", "--history", "h.sqlite", *PRICE], "no host has a price"),
    ],
)
def test_a_command_without_what_it_needs_says_so(
    run: Run, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    Path("h.yaml").write_text("hosts: {slow: {price: 1 USD/h}}")
    Path("no.yaml").write_text("hosts: {slow: }")
    assert main(["advise", "m/digits.yaml", *words]) == 2
    assert told in capsys.readouterr().err
