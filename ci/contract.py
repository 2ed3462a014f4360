"""Run the contract of predictors over every framework, two at a time; for ci/stacks.

The contract is tests/predictors/test_contract.py and test_layer_spans.py. A stack that needs
something that this machine does not have (an interpreter, a library, a GPU) is left out, and the
table says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pytest_mlms.core.errors import MlmsError, Unavailable
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.provide.stacks.schema import load_stacks

ROOT = Path(__file__).parent.parent
GPU_ONLY = {"tensorrt"}
CONVERTED_IN = {"tflite": "tensorflow"}
"""Frameworks whose networks another one makes; that one's stack is made for them, too."""
AT_ONCE = 2
TESTS = ("tests/predictors/test_contract.py", "tests/predictors/test_layer_spans.py")
OPTIONS = ("-q", "-rf", "--color=no", "-p", "no:cacheprovider")
_printing = threading.Lock()


class Outcome(NamedTuple):
    """Result of a contract: whether it holds, the framework's version, and counts of tests."""

    holds: bool
    version: str
    counts: str


class Row(NamedTuple):
    """The outcome of a stack, and what making and testing it took in seconds."""

    name: str
    outcome: Outcome
    making: float = 0
    testing: float = 0


def say(text: str) -> None:
    """Print whole lines, though two threads do."""
    with _printing:
        print(text, flush=True)


def check(stack: Stack, stacks: Mapping[str, Stack]) -> Row:
    """Make a stack and run the contract in it."""
    if stack.framework in GPU_ONLY and not Path("/dev/nvidiactl").exists():
        return Row(stack.name, left_out("there is no GPU"))
    began = time.monotonic()
    say(f"{stack.name}: making its stack, where it isn't there yet")
    problem = make(stack, stacks)
    made = time.monotonic()
    if problem is not None:
        return Row(stack.name, problem, made - began)
    say(f"{stack.name}: running the contract")
    outcome = contract(stack.framework)
    say(f"{stack.name}: {outcome.counts}")
    return Row(stack.name, outcome, made - began, time.monotonic() - made)


def left_out(reason: str) -> Outcome:
    """Return the outcome of a stack that can't be had here, which is no failure."""
    return Outcome(True, "", f"left out: {reason}")


def make(stack: Stack, stacks: Mapping[str, Stack]) -> Outcome | None:
    """Make the stacks that a framework needs; return an outcome only where one can't be made."""
    needed = {stack.name, CONVERTED_IN.get(stack.name, stack.name)}
    try:
        for name in needed:
            prepare(stacks[name], default_cache())
    except Unavailable as error:
        return left_out(str(error))
    except MlmsError as error:
        say(f"{stack.name}: {error}")
        return Outcome(False, "", "FAILED: the stack can't be made")
    return None


def contract(framework: str) -> Outcome:
    """Run the contract's tests of one framework."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        done = run_pytest(framework, report)
        if done.returncode:
            say(f"{framework}: the contract doesn't hold")
            say(done.stdout[-20000:])
            say(done.stderr[-5000:])
        if not report.exists():
            return Outcome(False, "", f"FAILED: pytest ended with status {done.returncode}")
        return read_report(report, framework)


def run_pytest(framework: str, report: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests whose parameters name a framework."""
    selected = f"[{framework}] or [{framework}- or -{framework}]"
    command = [sys.executable, "-m", "pytest", *OPTIONS, f"--junitxml={report}", "-k", selected]
    return subprocess.run(
        [*command, *TESTS],
        check=False,
        cwd=ROOT,
        env={**os.environ, "MLMS_TEST_FRAMEWORKS": framework},
        capture_output=True,
        text=True,
    )


def read_report(report: Path, framework: str) -> Outcome:
    """Return what pytest's JUnit report says; no passed test is a failure too."""
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    skipped = int(suite.get("skipped", 0))
    errors = int(suite.get("errors", 0))
    failed = errors + int(suite.get("failures", 0))
    passed = int(suite.get("tests", 0)) - failed - skipped
    version = ""
    for item in suite.iter("property"):
        if item.get("name") == framework:
            version = item.get("value") or ""
    counts = f"{passed} passed, {failed} failed, {skipped} skipped"
    return Outcome(passed > 0 and failed == 0, version, counts)


def print_table(rows: list[Row]) -> None:
    """Print a line for each stack."""
    print("\nstack        version     made in tested in  contract")
    for row in rows:
        outcome = row.outcome
        times = f"{row.making:6.0f} s {row.testing:7.0f} s"
        print(f"{row.name:12} {outcome.version:10} {times}  {outcome.counts}")


def main() -> int:
    """Run all stacks, or those named; print a table."""
    stacks = load_stacks(ROOT / "manifests" / "stacks.yaml")
    names = sys.argv[1:] or list(stacks)
    for name in names:
        if name not in stacks:
            known = ", ".join(stacks)
            print(f"no stack {name!r}; manifests/stacks.yaml has {known}", file=sys.stderr)
            return 2
    names.sort(key=CONVERTED_IN.__contains__)  # they wait for another one's stack
    chosen = [stacks[name] for name in names]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(partial(check, stacks=stacks), chosen))
    print_table(rows)
    return 0 if all(row.outcome.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
