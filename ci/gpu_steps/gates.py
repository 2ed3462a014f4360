"""Items of pytest on the device: upgrades whose truth is known, and all that one item measures."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpu_steps.facts import Facts

__all__ = ["items", "same", "slower", "two_of_jax"]

ROOT = Path(__file__).resolve().parents[2]
JAX = ROOT / "manifests" / "digits" / "digits_cnn.jax"
LAYERS = 20
MORE = 21  # 5 % more
TOLERANCE = "2 %"
TOLD = ("machine", "launch")  # by another step, or at length
MEASURED = ("PASSED", "INCONCLUSIVE")
CARRIED = ("PYTHONPATH",)  # where cupti-python is: agents get it from their stack alone

NETWORK = """
import os
import torch

LAYERS = int(os.environ["MLMS_LAYERS"])

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros({size}, {size}))

    def forward(self, x):
        y = x
        for number in range(LAYERS):
            z = y @ self.w
            if number < {layers}:
                y = z  # what comes after is work for nothing, as a slower kernel is
        return y
"""


class Run(NamedTuple):
    """A run of pytest: the end of what it printed, and the lines of its results."""

    tail: str
    items: Sequence[Mapping[str, Any]]


class Judged(NamedTuple):
    """The item of an upgrade, empty where there was none, and the end of what pytest printed."""

    item: Mapping[str, Any]
    tail: str

    @property
    def verdict(self) -> str:
        """The verdict, or the reason why there is none."""
        return str(self.item.get("verdict") or f"no verdict: {self.tail[-200:]}")

    @property
    def ratio(self) -> str:
        """The ratio of the latencies with its interval, as a table shows it."""
        for compared in self.item.get("comparisons") or ():
            if compared.get("quantity") == "latency" and compared.get("ratio"):
                low, high = compared.get("low"), compared.get("high")
                ends = f" [{low:.4f}, {high:.4f}]" if low and high else ""
                return f"{compared['ratio']:.4f}{ends}"
        return ""


def items(facts: Facts, device: str) -> None:
    """Measure and trace a network as an item does; tell all of it."""
    options = ["--mlms-trace=layer,kernel,hardware", "--mlms-processes=2", "--mlms-duration=1"]
    with network(device, LAYERS) as folder:
        run = run_pytest(folder, "--mlms-stack=a", "-kperf or trace", *options)
    if not run.items:
        facts.tell(printed=run.tail)
        facts.hold("items", "none", "measured", False)
    for item in run.items:
        facts.tell(item={name: value for name, value in item.items() if name not in TOLD})
        traced = item.get("trace") or {}
        notes = {**traced.get("unseen", {}), **traced.get("faults", {})} or item.get("gpu_notes")
        shown = f"{item['verdict']}; {notes or 'no notes'}"
        facts.hold(item["kind"], shown, "measured", item["verdict"] in MEASURED)


def same(facts: Facts, device: str) -> None:
    """Judge a network against itself: it must not be REGRESSED."""
    with network(device, LAYERS) as folder:
        judged = judge(facts, folder, 70)
    holds = judged.item.get("verdict") in ("PASSED", "INCONCLUSIVE")
    facts.hold("A/A", f"{judged.verdict} {judged.ratio}", "not REGRESSED", holds)


def slower(facts: Facts, device: str) -> None:
    """Judge a network with 5 % more work: it must be REGRESSED."""
    with network(device, MORE) as folder:
        judged = judge(facts, folder, 110)
    holds = judged.item.get("verdict") == "REGRESSED"
    facts.hold("+5 % of work", f"{judged.verdict} {judged.ratio}", "REGRESSED", holds)


def two_of_jax(facts: Facts, device: str) -> None:
    """Judge JAX against itself: two agents are there at once, and each would take the memory."""
    import jax  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder, JAX.name)
        graph.write_bytes(JAX.read_bytes())
        model = {"framework": "jax", "options": {"precision": "highest"}}
        write_project(Path(folder), model, {"graph": graph}, device, ("image", "logits", 64))
        judged = judge(facts, Path(folder), 30)
    holds = judged.item.get("verdict") in ("PASSED", "INCONCLUSIVE")
    facts.hold("two agents of JAX", f"{judged.verdict} {judged.ratio}", "both load", holds)


@contextlib.contextmanager
def network(device: str, layers: int) -> Iterator[Path]:
    """Yield a project with a network of PyTorch, which has 20 layers in stack a, others in b."""
    import torch

    size, batch = (256, 64) if device == "cpu" else (2048, 2048)
    with tempfile.TemporaryDirectory() as folder:
        graph, weights = Path(folder, "net.py"), Path(folder, "state.pt")
        graph.write_text(NETWORK.format(size=size, layers=LAYERS))
        torch.manual_seed(0)
        torch.save({"w": torch.randn(size, size) / size**0.5}, weights)
        options = {"class": "Net", "inputs": f"x float32[?,{size}]", "outputs": "y", "tf32": False}
        model = {"framework": "pytorch", "options": options}
        files = {"graph": graph, "weights": weights}
        write_project(Path(folder), model, files, device, ("x", "y", batch), layers)
        yield Path(folder)


def write_project(
    folder: Path,
    model: Mapping[str, Any],
    files: Mapping[str, Path],
    device: str,
    shape: tuple[str, str, int],
    layers: int = LAYERS,
) -> None:
    """Write the manifest of a model, and two stacks of this interpreter, b with so many layers.

    ``shape`` has the names of its input and its output, and the batch size.
    """
    source, sink, batch = shape
    digests = {role: hashlib.sha256(path.read_bytes()).hexdigest() for role, path in files.items()}
    names = {role: path.name for role, path in files.items()}
    manifest = {
        "name": "planted",
        "version": "1.0.0",
        "task": "regression",
        "license": "MIT",
        "models": [{**model, **names, "sha256": digests}],
        "inputs": [{"name": source, "type": "tensor", "element_type": "float32"}],
        "outputs": [{"name": sink, "type": "tensor"}],
        "evaluate": {"devices": [device], "batch_sizes": [batch]},
        "thresholds": {"upgrade": {"tolerance": TOLERANCE}},
    }
    (folder / "planted.yaml").write_text(json.dumps(manifest, indent=1))
    carried = {name: os.environ[name] for name in CARRIED if name in os.environ}
    a = {**carried, "MLMS_LAYERS": str(LAYERS)}
    b = {**carried, "MLMS_LAYERS": str(layers), "MLMS_SIDE": "b"}
    stacks = {name: {"interpreter": "current", "env": env} for name, env in (("a", a), ("b", b))}
    (folder / "stacks.yaml").write_text(json.dumps(stacks, indent=1))


def judge(facts: Facts, folder: Path, seconds: int) -> Judged:
    """Run the upgrade of the manifest in a folder, and tell what it found."""
    began = time.monotonic()
    run = run_pytest(folder, "--mlms-stack=b", "--mlms-against=a", f"--mlms-budget={seconds}")
    found = [item for item in run.items if item.get("kind") == "upgrade"]
    judged = Judged(found[0] if found else {}, run.tail)
    kept = ("verdict", "clock", "comparisons", "gpu_notes", "gpu_readings", "text")
    facts.tell(
        took=round(time.monotonic() - began, 1),
        rounds=len(judged.item.get("rounds") or ()),
        **{name: judged.item[name] for name in kept if name in judged.item},
    )
    return judged


def run_pytest(folder: Path, *options: str) -> Run:
    """Run the manifest in a folder, with locks and caches of its own."""
    own = {
        "COLUMNS": "160",
        "MLMS_CACHE": str(folder / "cache"),
        "MLMS_LOCKS": str(folder / "locks"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # this plugin is named, installed or not
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "pytest", "-p", "pytest_mlms.plugin", "-qrA", "--rootdir=."]
    done = subprocess.run(
        [*command, "-pno:cacheprovider", "--mlms-manifests=.", "--mlms-allow-code", *options],
        cwd=folder,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr, flush=True)
    return Run(done.stdout[-2500:], list(read_items(folder)))


def read_items(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the items of the run in a folder."""
    for file in folder.glob("mlms-results/latest/results.jsonl"):
        for line in file.read_text().splitlines():
            fields = json.loads(line)
            if "verdict" in fields:
                yield fields
