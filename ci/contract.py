"""The contract (tests/predictors) over every framework, two at a time; for ci/stacks.

A stack that this machine lacks something for (an interpreter, a library, a GPU) is left out,
visibly.
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

from pytest_mlms.artifacts.fetch import default_cache
from pytest_mlms.errors import MlmsError, Unavailable
from pytest_mlms.records import Stack
from pytest_mlms.stacks.launch import prepare
from pytest_mlms.stacks.schema import load_stacks

ROOT = Path(__file__).parent.parent
GPU_ONLY = {"tensorrt"}
CONVERTED_IN = {"tflite": "tensorflow"}
"""Whose networks another framework makes: that one's stack is made for it, too."""
AT_ONCE = 2
_OF = "[%s] or [%s- or -%s]"  # tests' parameters that name a framework
_printing = threading.Lock()


class Row(NamedTuple):
    """What became of a framework; times are seconds."""

    name: str
    good: bool
    version: str
    counts: str
    making: float
    testing: float


def say(text: str) -> None:
    """Print whole lines, though two threads do."""
    with _printing:
        print(text, flush=True)


def check(stack: Stack, stacks: Mapping[str, Stack]) -> Row:
    """Make a stack and run the contract in it."""
    began = time.monotonic()
    if stack.framework in GPU_ONLY and not Path("/dev/nvidiactl").exists():
        return Row(stack.name, True, "", "left out: there is no GPU", 0, 0)
    say(f"{stack.name}: making its stack, where it isn't there yet")
    try:
        for name in {stack.name, CONVERTED_IN.get(stack.name, stack.name)}:
            prepare(stacks[name], default_cache())
    except Unavailable as error:
        return Row(stack.name, True, "", f"left out: {error}", time.monotonic() - began, 0)
    except MlmsError as error:
        say(f"{stack.name}: {error}")
        return Row(
            stack.name, False, "", "FAILED: the stack can't be made", time.monotonic() - began, 0
        )
    made = time.monotonic()
    say(f"{stack.name}: running the contract")
    version, good, counts = contract(stack.framework)
    say(f"{stack.name}: {counts}")
    return Row(stack.name, good, version, counts, made - began, time.monotonic() - made)


def contract(framework: str) -> tuple[str, bool, str]:
    """Run the contract's tests of one framework.

    Return its version, whether it holds, and the counts.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rf",
            "--color=no",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
        ]
        done = subprocess.run(
            [
                *command,
                "-k",
                _OF % ((framework,) * 3),
                "tests/predictors/test_contract.py",
                "tests/predictors/test_layer_spans.py",
            ],
            check=False,
            cwd=ROOT,
            env={**os.environ, "MLMS_TEST_FRAMEWORKS": framework},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            say(
                f"{framework}: the contract doesn't hold\n{done.stdout[-20000:]}{done.stderr[-5000:]}"
            )
        if not report.exists():
            return "", False, f"FAILED: pytest ended with status {done.returncode}"
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    number = {kind: int(suite.get(kind, 0)) for kind in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    passed = number["tests"] - failed - number["skipped"]
    versions = {one.get("name"): one.get("value") or "" for one in suite.iter("property")}
    counts = f"{passed} passed, {failed} failed, {number['skipped']} skipped"
    return versions.get(framework, ""), not done.returncode and passed > 0, counts


def main() -> int:
    """Run all, or those named; print a table."""
    stacks = load_stacks(ROOT / "manifests" / "stacks.yaml")
    unknown = [name for name in sys.argv[1:] if name not in stacks]
    if unknown:
        print(
            f"no stack {unknown[0]!r}; manifests/stacks.yaml has {', '.join(stacks)}",
            file=sys.stderr,
        )
        return 2
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(
            pool.map(
                partial(check, stacks=stacks), [stacks[name] for name in sys.argv[1:] or stacks]
            )
        )
    print(f"\n{'stack':12} {'version':10} {'made in':>8} {'tested in':>9}  contract")
    for row in rows:
        print(
            f"{row.name:12} {row.version:10} {row.making:6.0f} s {row.testing:7.0f} s  {row.counts}"
        )
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
