"""Items of models that generate, in real agents: measured, judged, compared, shown."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.cli.main import main
from tests.items.test_loadgen import needs_loadgen
from tests.support.decoders import expected_tokens, write_decoder
from tests.support.project import PREDICTORS, ROOT, Project, sha256

pytestmark = pytest.mark.slow

ANSWERS = """\
name: answers
version: 1.0.0
task: text-generation
models: [{{framework: answering, graph: m.bin, sha256: {digest}}}]
inputs:
  - {{name: prompt, type: tensor, element_type: int64, shape: [batch, 20], range: [0, 31]}}
  - {{name: limit, type: tensor, element_type: int64, range: [32, 32]}}
  - {{name: past, type: tensor, element_type: float32, shape: [batch, 0], from_output: present}}
outputs: [{{name: tokens, type: tokens}}]
generate: {{prompt: prompt}}
evaluate: {{threads: 1}}
"""
STACKS = """
old: {framework: answering, interpreter: current}
same: {framework: answering, interpreter: current, env: {ANSWERING_NOTHING: "1"}}
each: {framework: answering, interpreter: current, env: {ANSWERING_EACH: "2.2e-4"}}
first: {framework: answering, interpreter: current, env: {ANSWERING_FIRST: "32e-3"}}
stall: {framework: answering, interpreter: current, env: {ANSWERING_STALL: "5e-3"}}
"""
PLANTED = """
old: {framework: planted, interpreter: current}
same: {framework: planted, interpreter: current, env: {PLANTED_NOTHING: "1"}}
noise: {framework: planted, interpreter: current, env: {PLANTED_NOISE: "2e-5"}}
other_noise: {framework: planted, interpreter: current, env: {PLANTED_NOISE: "2.1e-5"}}
much_noise: {framework: planted, interpreter: current, env: {PLANTED_NOISE: "5e-4"}}
as_much: {framework: planted, interpreter: current, env: {PLANTED_NOISE: "5.1e-4"}}
rounded: {framework: planted, interpreter: current, env: {PLANTED_ROUNDED: "2e-5"}}
position: {framework: planted, interpreter: current, env: {PLANTED_POSITION: "20"}}
bits: {framework: planted, interpreter: current, env: {PLANTED_BITS: "4"}}
swapped: {framework: planted, interpreter: current, env: {PLANTED_SWAPPED: "30"}}
dropped: {framework: planted, interpreter: current, env: {PLANTED_DROPPED: "1"}}
forgets: {framework: planted, interpreter: current, env: {PLANTED_FORGETS: "20"}}
"""


def documented() -> str:
    """Return the manifest of docs/generation.md."""
    text = (ROOT / "docs" / "generation.md").read_text()
    found = re.search(r"```yaml\n(name: .*?)```", text, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def decoder(project: Project) -> Path:
    """The decoder of the documents' manifest, which the project has."""
    path = write_decoder(project.folder / "decoder.onnx")
    project.manifest.write_text(documented().replace("5c43…", sha256(path.read_bytes())))
    return path


@pytest.fixture
def answers(project: Project) -> Project:
    """A project with a model whose tokens take as long as a stack says."""
    (project.folder / "m.bin").write_bytes(b"x")
    project.manifest.write_text(ANSWERS.format(digest=sha256(b"x")))
    (project.folder / "stacks.yaml").write_text(STACKS)
    return project


def values(item: dict[str, Any], *names: str) -> list[float]:
    return [item["estimates"][name]["value"] for name in names]


def test_the_manifest_of_the_documents_measures_tokens_and_shows_them(
    project: Project, decoder: Path
) -> None:
    result = project.run("-k", "performance", "--mlms-duration=0.2")
    result.stdout.fnmatch_lines("*mlms: tokens, worst first*")
    items = project.items()
    assert [item["shape"] for item in items] == ["short", "long"]
    for item in items:
        rate, mean = values(item, "output_rate", "latency_mean")
        count = rate * mean
        assert 1 <= count <= 32
        assert {limit["verdict"] for limit in item["limits"]} == {"PASSED"}, item["limits"]
        ttft, tpot, itl = values(item, "ttft", "tpot", "itl")
        assert 0 < ttft < mean
        assert 0 < tpot <= itl
    assert main(["report", str(project.results), "--out", str(project.path / "report.html")]) == 0
    report = (project.path / "report.html").read_text()
    for name in ("ttft", "tpot", "itl", "output rate"):
        assert f"<td>{name}</td>" in report


def test_answers_to_prompts_of_several_lengths_are_scored_and_have_a_line_each(
    project: Project, decoder: Path
) -> None:
    random = np.random.default_rng(1)
    table = ["input_ids,limit,label"]
    with zipfile.ZipFile(project.folder / "set.zip", "w") as archive:
        for number in range(12):
            prompt = random.integers(0, 32, 4 if number % 3 else 40)
            tokens, _ = expected_tokens(decoder, prompt.tolist(), 6)
            found: dict[str, Any] = {"p": prompt, "l": np.int64(6), "t": np.array(tokens)}
            for name, array in found.items():
                np.save(project.folder / "a.npy", array)
                archive.write(project.folder / "a.npy", f"{name}{number}.npy")
            table.append(f"p{number}.npy,l{number}.npy,t{number}.npy")
        archive.writestr("labels.csv", "\n".join(table))
    digest = sha256((project.folder / "set.zip").read_bytes())
    dataset = f"dataset: {{name: d, version: 1.0.0, source: set.zip, sha256: {digest}}}"
    project.edit("evaluate: ", f"{dataset}\nevaluate: ")
    project.edit(", end: [2]}", "}")
    project.edit("{short: {prompt: 8}, long: {prompt: 64}}", "dataset")
    project.edit("[{max: 2 s, shapes: [short]}, {max: 4 s, shapes: [long]}]", "{max: 4 s}")
    project.edit("thresholds:", "thresholds:\n  same_tokens: {min: 100 %}")
    result = project.run("--mlms-duration=0.2")
    accuracy, performance = project.items()
    assert values(accuracy, "same_tokens") == [1.0]
    assert performance["verdict"] == "PASSED"
    groups = performance["input_groups"]
    assert [group["name"] for group in groups] == ["4", "40"]
    assert all(group["tpot"] > 0 and 0 < group["ttft"] < group["latency"] for group in groups)
    result.stdout.fnmatch_lines("*inputs of shape 40 (33 %): * to the first token, * further one*")


@pytest.mark.parametrize(
    ("stack", "quantity"), [("each", "tpot"), ("first", "ttft"), ("stall", "itl")]
)
def test_a_candidate_whose_tokens_come_later_regresses(
    answers: Project, stack: str, quantity: str
) -> None:
    found = compared(answers, stack)
    assert found[quantity] == "REGRESSED"
    others = {"ttft", "tpot"} - {quantity} if stack != "stall" else {"ttft"}
    assert all(found[other] != "REGRESSED" for other in others)


def test_the_same_candidate_does_not_regress(answers: Project) -> None:
    found = compared(answers, "same")
    assert {"ttft", "tpot", "itl", "output_rate"} <= found.keys()
    assert "REGRESSED" not in found.values()


@pytest.fixture
def planted(project: Project, decoder: Path) -> Project:
    """A project with stacks that have a fault each in ONNX Runtime's generation."""
    project.edit("onnxruntime, graph", "planted, graph")
    project.edit(", long: {prompt: 64}", "")
    project.edit(", end: [2]", "")
    text = project.manifest.read_text()
    project.manifest.write_text(text[: text.index("thresholds:")])
    (project.folder / "stacks.yaml").write_text(PLANTED)
    return project


def sameness(planted: Project, old: str, new: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an upgrade's item, and the comparison of its outputs."""
    planted.run(f"--mlms-predictors={PREDICTORS}", f"--mlms-stack={new}", f"--mlms-against={old}")
    (item,) = planted.items()
    (found,) = (each for each in item["comparisons"] if each["quantity"] == "agreement")
    return item, found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("old", "same"),
        ("old", "rounded"),
        ("noise", "other_noise"),
        ("much_noise", "as_much"),
    ],
)
def test_tokens_that_rounding_or_the_baselines_own_noise_decides_are_no_regression(
    planted: Project, old: str, new: str
) -> None:
    _, found = sameness(planted, old, new)
    assert found["verdict"] == "PASSED", found
    words = "outputs are equal on" if new == "same" else "or as likely within rounding ("
    assert words in found["told"]


def test_log_probabilities_are_allowed_what_their_logits_are(planted: Project) -> None:
    planted.edit(
        "{name: tokens, type: tokens}",
        "{name: tokens, type: tokens}, {name: logprobs, type: tensor}",
    )
    _, found = sameness(planted, "old", "rounded")
    assert found["verdict"] == "PASSED", found
    assert "answers have other tokens, as likely within rounding" in found["told"]


@pytest.mark.parametrize("fault", ["position", "bits", "swapped", "forgets"])
def test_a_token_that_is_less_likely_than_rounding_explains_is_a_fault_and_shown(
    planted: Project, fault: str
) -> None:
    item, found = sameness(planted, "old", fault)
    assert found["verdict"] == "REGRESSED"
    (first, *_) = item["worse_inputs"]
    score = r"-[\d.e-]+"
    shown = rf".*: tokens\[(\d+)\] (\d+) \(log-probability {score}\) -> (\d+) \({score} by"
    match = re.match(shown, first)
    assert match
    if fault == "swapped":
        assert match[1] == "22"  # the 31st token of all, behind a prompt of 8


def test_an_answer_that_ends_too_early_is_a_fault(planted: Project) -> None:
    _, found = sameness(planted, "old", "dropped")
    assert found["verdict"] == "REGRESSED"
    assert "'tokens' is (1, 31), and (1, 32) of the baseline" in found["lacking"]


def test_a_bundle_is_refused_as_it_would_not_generate(
    answers: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    answers.manifest.write_text(
        f"{answers.manifest.read_text()}thresholds: {{tpot: {{max: 1 ns}}}}"
    )
    answers.run(f"--mlms-predictors={PREDICTORS}", "--mlms-stack=old")
    assert main(["repro", "performance", "--mlms-predictors", str(PREDICTORS)]) == 2
    assert "the model generates, which bundles don't yet" in capsys.readouterr().err


SHORT = ("--mlms-stack=old", "--mlms-budget=2")


def run_scenario(project: Project, scenario: str, *options: str) -> pytest.RunResult:
    project.edit("{threads: 1}", f"{{threads: 1, scenarios: [{scenario}]}}")
    return project.run(f"--mlms-predictors={PREDICTORS}", *(options or SHORT))


def serve(project: Project, scenario: str, *options: str) -> dict[str, Any]:
    """Measure a scenario; return its item."""
    run_scenario(project, scenario, *options)
    (item,) = project.items()
    return item


def verdicts(item: dict[str, Any]) -> dict[str, str]:
    return {limit["quantity"]: limit["verdict"] for limit in item["limits"]}


def test_decoders_under_load_have_times_of_tokens_from_the_scheduled_time(
    project: Project, decoder: Path
) -> None:
    server = "server: {rate: 40 /s, ttft: 60 s, tpot: 1 s, percentile: 50}"
    project.edit("{threads: 1,", f"{{threads: 1, instances: 2, scenarios: [{server}],")
    project.edit("thresholds:", "thresholds:\n  goodput: {min: 1 /s}")
    result = project.run("-k", "performance", "--mlms-budget=2")
    result.stdout.fnmatch_lines("*mlms: queries under load, worst first*")
    items = project.items()
    assert [item["shape"] for item in items] == ["short", "long"]
    for item in items:
        found = verdicts(item)
        assert (found["query_ttft"], found["query_tpot"]) == ("PASSED", "PASSED")
        assert {"goodput", "ttft", "tpot", "output_rate"} <= found.keys()
        ttft, whole, late, tpot = values(item, "ttft", "latency_p50", "query_ttft", "query_tpot")
        assert 0 < ttft < whole
        assert late >= 0.999 * ttft, "LoadGen's percentile is one of the values"
        assert tpot > 0
        process, *_ = item["processes"]
        assert process["load"]["over"] == 0
        with np.load(project.results / item["artifacts"]["samples-0.npz"]) as times:
            lasts = times["token"][np.cumsum(times["tokens"]).astype(int) - 1]
            assert ((times["issued"] < lasts) & (lasts <= times["end"])).all()
            assert len(times["token"]) == times["tokens"].sum()


def test_an_overloaded_server_fails_by_its_first_tokens(answers: Project) -> None:
    item = serve(answers, "server: {rate: 500 /s, ttft: 50 ms, tpot: 1 s, percentile: 50}")
    assert item["verdict"] == "FAILED"
    assert verdicts(item)["query_ttft"] in ("FAILED", "INVALID"), "a busy machine is late, too"
    goodput, rate = values(item, "goodput", "query_rate")
    assert goodput < rate / 2


def test_answers_that_end_at_once_leave_the_time_of_further_tokens_undecided(
    answers: Project,
) -> None:
    answers.edit("range: [32, 32]", "range: [1, 1]")
    item = serve(answers, "server: {rate: 20 /s, ttft: 60 s, tpot: 1 s, percentile: 50}")
    assert verdicts(item) == {"query_ttft": "PASSED", "query_tpot": "INCONCLUSIVE"}
    assert item["verdict"] == "INCONCLUSIVE"


def test_the_peak_is_where_the_first_tokens_come_too_late(answers: Project) -> None:
    answers.edit("range: [32, 32]", "range: [4, 4]")
    peak = "peak: {ttft: 30 ms, tpot: 1 s, percentile: 50, precision: 20 %}"
    item = serve(answers, peak, "--mlms-stack=old", "--mlms-budget=5")
    estimate = item["estimates"]["peak_rate"]
    assert estimate["low"] < 385, "an answer takes 2.6 ms of a core"
    above = [probe for probe in item["probes"] if probe["rate"] > 400]
    assert "good" not in {probe["outcome"] for probe in above}


def test_a_peak_of_answers_that_end_at_once_is_an_error(answers: Project) -> None:
    answers.edit("range: [32, 32]", "range: [1, 1]")
    result = run_scenario(answers, "peak: {ttft: 30 ms, tpot: 10 ms, percentile: 50}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*no answer has a second token, so that nothing has a tpot*")


@needs_loadgen
def test_loadgen_times_the_same_tokens(answers: Project) -> None:
    server = "server: {rate: 60 /s, ttft: 60 s, tpot: 1 s, percentile: 50}"
    ours = serve(answers, server)
    answers.run(f"--mlms-predictors={PREDICTORS}", *SHORT, "--mlms-loadgen")
    theirs = answers.items()[-1]
    assert theirs["doubts"].startswith("LoadGen: VALID")
    for item in (ours, theirs):
        assert verdicts(item) == {"query_ttft": "PASSED", "query_tpot": "PASSED"}
        ttft, tpot, rate = values(item, "query_ttft", "query_tpot", "output_rate")
        assert ttft >= 0.002
        assert tpot >= 0.0002
        assert rate > 0


@needs_loadgen
def test_loadgen_fails_an_overloaded_server_by_the_limit_that_is_broken(answers: Project) -> None:
    server = "server: {rate: 500 /s, ttft: 1 s, tpot: 1 s, percentile: 50}"
    item = serve(answers, server, *SHORT, "--mlms-loadgen", "--mlms-duration=1")
    assert item["doubts"].startswith("LoadGen: INVALID")
    assert verdicts(item) == {"query_ttft": "FAILED", "query_tpot": "INCONCLUSIVE"}


@needs_loadgen
@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("single_stream", "an answer has one token, and LoadGen takes two at least"),
        (
            "server: {rate: 20 /s, latency: 1 s, tpot: 1 s}",
            "LoadGen judges whole answers or tokens; leave out 'latency', or",
        ),
    ],
)
def test_what_loadgen_does_not_judge_is_an_error(
    answers: Project, scenario: str, message: str
) -> None:
    answers.edit("range: [32, 32]", "range: [1, 1]")
    result = run_scenario(answers, scenario, *SHORT, "--mlms-loadgen")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(f"*{message}*")


def compared(answers: Project, stack: str) -> dict[str, str]:
    """Return the verdicts on the quantities of an upgrade."""
    predictors = f"--mlms-predictors={PREDICTORS}"
    answers.run(predictors, f"--mlms-stack={stack}", "--mlms-against=old", "--mlms-duration=1")
    (item,) = answers.items()
    return {each["quantity"]: each["verdict"] for each in item["comparisons"]}


def test_a_framework_that_cannot_generate_is_an_error(project: Project, decoder: Path) -> None:
    model = f"lengths, graph: m.bin, sha256: {sha256(b'x')}"
    (project.folder / "m.bin").write_bytes(b"x")
    text = documented().replace("onnxruntime, graph: decoder.onnx, sha256: 5c43…", model)
    project.manifest.write_text(text)
    result = project.run(f"--mlms-predictors={PREDICTORS}")
    result.stdout.fnmatch_lines("*NotImplementedError: lengths.py has no 'generate'*")
