"""A first quarter of an hour on a GPU: steps in the order of their worth, each bounded in time.

    bash ci/gpu [INTERPRETER] [--seconds 470] [--only STEP …] [--device cuda:0|cpu] [--out FOLDER]
    bash ci/gpu --page FACTS    # write the figures of a run into docs/gpu.md
    bash ci/gpu --bundle        # make .lease/: the wheels for a machine without a network
    bash ci/gpu --list          # the steps

Each step is a process of its own with a limit of its own, so a hang costs its limit and no more.
What a step finds goes at once to FOLDER/steps.jsonl, and what it prints to FOLDER/log.txt. The end
is a table of what was held against a bound. --only takes beginnings: --only path runs every path to
a GPU that the frameworks of the interpreter have, from Python 3.6 on; this project need not be
installed for that. With --device cpu the steps run that can, and the others say that they need a
GPU. Ends with 1 where a step failed or a figure is out of its bound.
"""

import argparse
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, List, NamedTuple

from gpu_steps.facts import Facts, read_facts
from gpu_steps.page import table, write_page

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "mlms-results" / "gpu"
SHORTEST = 15.0  # seconds in which a step may find something
OURS = ("gpu_paths", "gpu_steps", "mlms_predictors", "pytest_mlms")


class Step(NamedTuple):
    """A step: its function in a module of gpu_steps, its limit in seconds, and its argument.

    ``is_dry`` says that it also runs without a GPU.
    """

    name: str
    function: str
    seconds: int
    is_dry: bool = False
    argument: str = ""


def path(way: str, seconds: int = 45, is_dry: bool = True) -> Step:
    """Return the step of a path of gpu_paths.py."""
    return Step("path " + way, "paths.try_way", seconds, is_dry, way)


STEPS = [
    Step("machine", "machine.describe", 30, True),
    Step("kernels", "kernels.known_lengths", 75),  # the first that imports torch
    Step("cupti", "profilers.cupti_first", 35),
    path("pytorch, .pt2 eager", 60),
    Step("same", "gates.same", 120, True),
    Step("clocks", "power.clocks", 30),
    Step("slower", "gates.slower", 160, True),
    Step("items", "gates.items", 120, True),
    path("jax, StableHLO"),
    Step("kineto", "profilers.kineto_first", 30),
    Step("energy", "power.energy", 25),
    Step("memory", "memory.counters", 30),
    Step("streams", "kernels.two_instances", 40, True),
    Step("stopped", "memory.stopped_neighbour", 45),
    Step("jax agents", "gates.two_of_jax", 90, True),
    Step("jax planes", "profilers.jax_planes", 30, True),
    path("pytorch, TorchScript"),
    Step("ncu", "profilers.ncu", 40),
    path("pytorch, state dict", 40),
    path("pytorch, .pt2 compiled", 75),
    path("pytorch, CUDA graph", 60, False),
    Step("both", "profilers.both", 30),
    path("onnxruntime, CUDA"),
    path("onnxruntime, TensorRT", 90, False),
    path("tensorflow, SavedModel"),
    path("tensorrt, from ONNX", 90, False),
]


def main() -> int:
    """Run the steps, or one of them in this process."""
    options = parse_options()
    if options.list:
        for step in STEPS:
            print("%-30s %4d s%s" % (step.name, step.seconds, "" if step.is_dry else ", a GPU"))
        return 0
    if options.bundle:
        return bundle()
    if options.page:
        write_page(read_facts(options.page), ROOT / "docs" / "gpu.md")
        return 0
    if options.step:
        return run_here(options)
    return run_all(options)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    head, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="bash ci/gpu [INTERPRETER]", description=head)
    parser.add_argument("--seconds", type=float, default=470, help="for all steps; %(default)s")
    parser.add_argument("--only", nargs="+", default=[""], metavar="STEP", help="or its beginning")
    parser.add_argument("--device", default="cuda:0", help="or cpu; default: %(default)s")
    parser.add_argument("--out", type=Path, default=OUT, help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="print the steps and their limits")
    parser.add_argument("--bundle", action="store_true", help="make the wheels to carry")
    parser.add_argument("--page", type=Path, metavar="FACTS", help="write docs/gpu.md")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    options.steps = [step for step in STEPS if step.name.startswith(tuple(options.only))]
    if not options.steps:
        parser.error("no step %s; --list has them" % ", ".join(options.only))
    return options


def bundle() -> int:
    """Make the wheels to carry; return 1 where something would be missing."""
    make: Any = importlib.import_module("gpu_steps.bundle")
    try:
        make.make_bundle()
    except make.MlmsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def run_all(options: argparse.Namespace) -> int:
    """Run the steps one after the other; return 1 where one failed or a figure is out of bound."""
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "steps.jsonl"
    file.write_text("")
    (options.out / "log.txt").write_text("")
    end = time.monotonic() + options.seconds
    for step in options.steps:
        run_step(step, options, end - time.monotonic())
    facts = read_facts(file)
    print("\n" + "\n".join(table(facts)))
    failed = any(fact.get("holds") is False for fact in facts)
    return 1 if failed or any("failed" in fact for fact in facts) else 0


def run_step(step: Step, options: argparse.Namespace, left: float) -> None:
    """Run a step in a process, for its limit or what is left; tell how it ended."""
    facts = Facts(options.out / "steps.jsonl", step.name)
    if options.device == "cpu" and not step.is_dry:
        facts.tell(not_run="it needs a GPU")
        return
    if left < SHORTEST:
        facts.tell(not_run="%.0f s were left" % max(left, 0))
        return
    began = time.monotonic()
    command = [sys.executable, "-B", __file__, "--step", step.name, "--device", options.device]
    with open(str(options.out / "log.txt"), "ab") as log:
        log.write(("\n===== %s\n" % step.name).encode())
        log.flush()
        process = subprocess.Popen(
            command + ["--out", str(options.out)], stdout=log, stderr=log, start_new_session=True
        )
        status = end_of(process, min(step.seconds, left))
    seconds = time.monotonic() - began
    facts.tell(ended=status, seconds=round(seconds, 1))
    if status != 0:
        facts.tell(failed="it ended with %s; see log.txt" % status)
    print(
        "%-30s %-10s %5.1f s" % (step.name, "done" if status == 0 else status, seconds), flush=True
    )


def end_of(process: Any, seconds: float) -> Any:
    """Return the status of a process, or "time-out" after it and its children were killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return "time-out"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_here(options: argparse.Namespace) -> int:
    """Run one step in this process."""
    paths: Any = importlib.import_module("gpu_paths")
    paths.share()
    sys.path.append(str(ROOT))  # where this project isn't installed
    (step,) = [step for step in STEPS if step.name == options.step]
    module, _, function = step.function.partition(".")
    facts = Facts(options.out / "steps.jsonl", step.name)
    arguments: List[Any] = [facts, options.device]
    if step.argument:
        arguments.append(step.argument)
    try:
        getattr(importlib.import_module("gpu_steps." + module), function)(*arguments)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in OURS:
            raise  # a fault of ours, no package that is missing
        facts.tell(not_run="%s in %s" % (error, sys.executable))
    return 0


if __name__ == "__main__":
    sys.exit(main())
