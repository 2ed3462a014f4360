"""Run upgrades whose truth is known through the gate, and hold its verdicts against the truth.

    bash ci/known_regressions [CASE…] [--list]

Each case is ``pytest --mlms-manifests=. --mlms-stack new --mlms-against old`` in a folder below
build/known_regressions, with real releases, which pip installs. What ran is appended to
runs-COMMIT.jsonl there. When all cases of a commit have run, docs/known_regressions.md is written
from their last runs. The first time takes about half an hour, most of it for pip; later ones ten
minutes. The machine should be quiet.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from known_cases import CASES, PLANT, KnownCase, planted_cases
from known_models import JAX_MODELS, write_jax, write_onnx, write_pictures
from measured_commit import measured_commit

from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.statistics import signed_rank

__all__ = ["Run", "judge", "page_lines"]

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "known_regressions"
RUNS = WORK / f"runs-{measured_commit()}.jsonl"
PAGE = ROOT / "docs" / "known_regressions.md"
PLANTS = WORK / "plants"
_BARE_PAIRS = 16  # whose interval one disturbed pair of processes doesn't move far

_HEAD = """\
# Upgrades with a known truth

Written by `bash ci/known_regressions` on {date}, commit {commit}, on {machine}. The cases are
upgrades that people reported as worse, with the releases that they named, and planted faults. The
truth was measured by bare loops without the plugin. Each row is the last run of
`pytest --mlms-manifests=. --mlms-stack new --mlms-against old`. **{right} of {count} are right.**

| case | from → to | truth | verdict | by | seconds |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Run:
    """A case's run: its verdict, the quantities that decided it, and its seconds."""

    case: str
    verdict: str
    by: Sequence[str]
    status: int
    seconds: float
    right: bool
    why_wrong: str
    truth: str = ""


def judge(
    case: KnownCase,
    line: dict[str, Any],
    output: str,
    status: int,
    seconds: float,
    bare: Sequence[float] = (),
) -> Run:
    """Hold a run against the truth; ``line`` is the item's, ``output`` what pytest printed.

    ``bare`` are the ratios of bare loops, one for each pair of processes; the truth where given.
    """
    verdict = line.get("verdict", "no item")
    by = [
        comparison["quantity"]
        for comparison in line.get("comparisons", [])
        if comparison.get("verdict") == verdict
    ]
    wrong = []
    expected = by_bare_loops(bare) if bare else []
    if bare:
        wrong += _unlike_bare_loops(line, expected)
    elif verdict != case.expected.name:
        wrong.append(f"expected {case.expected.name}")
    elif case.quantities and not set(by) & set(case.quantities):
        wrong.append(f"expected by {' or '.join(case.quantities)}")
    wrong += [f"doesn't tell {text!r}" for text in case.told if text not in output]
    if status != (1 if verdict == "REGRESSED" else 0):
        wrong.append(f"exit status {status}")
    why_wrong = "; ".join(wrong)
    truth = ""
    if bare:
        truth = f"latency × {statistics.geometric_mean(bare):.2f} here, by bare loops"
        truth += ", which leave the verdict open" if len(expected) > 1 else ""
    return Run(case.name, verdict, by, status, round(seconds, 1), not wrong, why_wrong, truth)


def _unlike_bare_loops(line: dict[str, Any], expected: Sequence[str]) -> list[str]:
    """Return what is wrong with the verdicts of an item and of its latency."""
    if not expected:
        return ["bare loops differ too much to tell the truth"]
    of_latency = [
        one.get("verdict") for one in line.get("comparisons", ()) if one["quantity"] == "latency"
    ]
    text = " or ".join(expected)
    wrong = [f"expected {text}"] if line.get("verdict") not in expected else []
    if not set(of_latency) & set(expected):
        found = ", ".join(map(str, of_latency)) or "none"
        wrong.append(f"expected {text} by latency, and found {found}")
    return wrong


def by_bare_loops(ratios: Sequence[float]) -> list[str]:
    """Return the verdicts that agree with bare loops.

    Each is a ratio of fresh processes of both sides, one after the other. There are several
    verdicts where the interval of their centre, by ranks, has an edge of the tolerance in it, and
    none where it has both, as such loops tell nothing.
    """
    limit = math.log1p(upgrade_rules()["latency"].tolerance)
    _, low, high = signed_rank([math.log(ratio) for ratio in ratios])
    if low < -limit and high > limit:
        return []
    regions = {"IMPROVED": low < -limit, "REGRESSED": high > limit}
    regions["PASSED"] = low < limit and high > -limit
    found = [name for name, reached in regions.items() if reached]
    return found if len(found) == 1 else [*found, "INCONCLUSIVE"]


def bare_ratios(case: KnownCase, folder: Path, line: dict[str, Any]) -> list[float]:
    """Return the ratios of bare loops with the interpreters that the item ran."""
    if not case.bare or not line.get("rounds"):
        return []
    sides = line["rounds"][0]["sides"]
    ratios = []
    for pair in range(_BARE_PAIRS):
        seconds = {}
        for side in ("ab", "ba")[pair % 2]:
            command = [sides[side]["executable"], str(ROOT / "ci" / "known_bare.py"), *case.bare]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
            seconds[side] = float(done.stdout)
        ratios.append(seconds["b"] / seconds["a"])
    return ratios


def write_case(case: KnownCase, folder: Path) -> None:
    """Write the model, the data, the manifest and the stacks of a case."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stacks = {"old": dict(case.old), "new": dict(case.new)}
    (folder / "stacks.yaml").write_text(yaml.safe_dump(stacks, sort_keys=False))
    if case.model in JAX_MODELS:
        graph = write_jax(case.model, folder, _exporter(case.old["requirements"]))
    else:
        graph = write_onnx(case.model, folder)
    model: dict[str, Any] = {
        "framework": case.framework,
        "graph": graph.name,
        "sha256": _sha256(graph),
    }
    if case.options:
        model["options"] = dict(case.options)
    manifest: dict[str, Any] = {
        "name": case.model,
        "version": "1.0.0",
        "task": "inference",
        "models": [model],
    }
    manifest.update(case.keys)
    if case.pictures:
        pictures = write_pictures(folder)
        manifest["dataset"] = {
            "name": "pictures",
            "version": "1.0.0",
            "source": pictures.name,
            "sha256": _sha256(pictures),
        }
    (folder / "model.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _exporter(requirements: Sequence[str]) -> Path:
    """Make an environment with these packages and what exporting needs; return its interpreter."""
    folder = WORK / "environments" / re.sub(r"[^\w.]+", "-", " ".join(requirements))
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *requirements, "absl-py", "flatbuffers"], check=True)
    return python


def run(case: KnownCase) -> Run:
    """Run a case as a user does."""
    folder = WORK / case.name.replace(" ", "-")
    write_case(case, folder)
    (folder / "pytest.ini").write_text("[pytest]\n")  # else this project's settings are found
    command = [sys.executable, "-m", "pytest", "--mlms-manifests=."]
    stacks = ["--mlms-stack=new", "--mlms-against=old"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, *stacks],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    (folder / "output.txt").write_text(done.stdout)
    line = _last_line(folder)
    bare = bare_ratios(case, folder, line)
    return judge(case, line, done.stdout, done.returncode, seconds, bare)


def _last_line(folder: Path) -> dict[str, Any]:
    """Return the line of the item in the newest results of a folder."""
    found = sorted(folder.glob("mlms-results/*/results.jsonl"))  # names begin with the time
    for path in found[-1:]:
        for text in path.read_text().splitlines():
            line: dict[str, Any] = json.loads(text)
            if line.get("kind") == "upgrade":
                return line
    return {}


def page_lines(cases: Sequence[KnownCase], runs: Sequence[Run]) -> Iterator[str]:
    """Yield the rows of the page."""
    for case in cases:
        of_case = [run for run in runs if run.case == case.name]
        if not of_case:
            continue
        *earlier, run = of_case
        verdict = run.verdict if run.right else f"**{run.verdict}**: {run.why_wrong}"
        wrong = sum(not each.right for each in earlier)
        if wrong:
            verdict += f" (wrong in {wrong} of {len(earlier)} runs before)"
        by = ", ".join(run.by)
        yield (
            f"| {case.name} ({case.report}) | {_change(case)} | {run.truth or case.truth} "
            f"| {verdict} | {by} "
            f"| {run.seconds:.0f} |"
        )


def _change(case: KnownCase) -> str:
    """Return the requirements that differ between both stacks."""
    old, new = ({*stack["requirements"]} for stack in (case.old, case.new))
    parts = [" ".join(sorted(these - others)) for these, others in ((old, new), (new, old))]
    if any(parts):
        return " → ".join(parts)
    if "python" in case.new and case.old.get("python") != case.new["python"]:
        return f"Python {case.old['python']} → {case.new['python']}"
    return "the same"


def read_runs() -> list[Run]:
    """Return the runs that were made so far."""
    if not RUNS.exists():
        return []
    return [Run(**json.loads(line)) for line in RUNS.read_text().splitlines()]


def write_page(cases: Sequence[KnownCase], runs: Sequence[Run]) -> None:
    """Write docs/known_regressions.md from the last run of each case."""
    last = {run.case: run for run in runs}
    head = _HEAD.format(
        date=datetime.date.today(),
        commit=measured_commit(),
        machine=f"{os.cpu_count()} cores of {_processor()}",
        right=sum(last[case.name].right for case in cases),
        count=len(cases),
    )
    PAGE.write_text(head + "\n".join(page_lines(cases, runs)) + "\n")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown processor"


def main() -> int:
    """Run the cases that are named, or all; return 1 where a verdict is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all where none is named")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    options = parser.parse_args()
    PLANTS.mkdir(parents=True, exist_ok=True)
    (PLANTS / "onnxruntime.py").write_text(PLANT)
    cases = [*CASES, *planted_cases(str(PLANTS))]
    names = [case.name for case in cases]
    if options.list:
        print("\n".join(names))
        return 0
    unknown = set(options.cases) - set(names)
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; --list has the names")
    wrong = 0
    for case in cases:
        if options.cases and case.name not in options.cases:
            continue
        made = run(case)
        wrong += not made.right
        with RUNS.open("a") as file:
            file.write(f"{json.dumps(asdict(made))}\n")
        answer = "right" if made.right else f"WRONG: {made.why_wrong}"
        print(f"{made.case}: {made.verdict}, {made.seconds:.0f} s, {answer}", flush=True)
    runs = read_runs()
    if {run.case for run in runs} >= set(names):
        write_page(cases, runs)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
