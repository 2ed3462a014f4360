"""Upgrades whose truth is known, judged on the device by pytest: the same, and 5 % more work."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpu_steps.facts import Facts

__all__ = ["same", "slower", "two_of_jax"]

ROOT = Path(__file__).resolve().parents[2]
JAX = ROOT / "manifests" / "digits" / "digits_cnn.jax"
LAYERS = 20
MORE = 21  # 5 % more
TOLERANCE = "2 %"

STACKS = """
a: {{interpreter: current, env: {{MLMS_LAYERS: "{a}"}}}}
b: {{interpreter: current, env: {{MLMS_LAYERS: "{b}", MLMS_SIDE: b}}}}
"""
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


class Judged(NamedTuple):
    """A run of pytest: its status, the end of what it printed, and the item of the upgrade."""

    status: int
    tail: str
    item: Mapping[str, Any]

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


def same(facts: Facts, device: str) -> None:
    """Judge a network against itself: it must not be REGRESSED."""
    judged = judge_network(facts, device, LAYERS, 70)
    holds = judged.item.get("verdict") in ("PASSED", "INCONCLUSIVE")
    facts.hold("A/A", f"{judged.verdict} {judged.ratio}", "not REGRESSED", holds)


def slower(facts: Facts, device: str) -> None:
    """Judge a network with 5 % more work: it must be REGRESSED."""
    judged = judge_network(facts, device, MORE, 110)
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


def judge_network(facts: Facts, device: str, layers: int, seconds: int) -> Judged:
    """Judge a network of PyTorch with so many layers against the one of 20."""
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
        return judge(facts, Path(folder), seconds)


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
    (folder / "stacks.yaml").write_text(STACKS.format(a=LAYERS, b=layers))


def judge(facts: Facts, folder: Path, seconds: int) -> Judged:
    """Run the upgrade of the manifest in a folder, and tell what it found."""
    began = time.monotonic()
    own = {"MLMS_LOCKS": str(folder / "locks"), "MLMS_CACHE": str(folder / "cache")}
    own["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # this plugin is named, installed or not
    command = [sys.executable, "-m", "pytest", "-p", "pytest_mlms.plugin", "-qrA", "--rootdir=."]
    options = ["--mlms-manifests=.", "--mlms-stack=b", "--mlms-against=a", "--mlms-allow-code"]
    done = subprocess.run(
        [*command, "-pno:cacheprovider", *options, f"--mlms-budget={seconds}"],
        cwd=folder,
        env={**os.environ, **own, "COLUMNS": "160", "PYTHONPATH": _paths()},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr, flush=True)
    items = [item for item in read_items(folder) if item.get("kind") == "upgrade"]
    judged = Judged(done.returncode, done.stdout[-2500:], items[0] if items else {})
    kept = ("verdict", "clock", "comparisons", "gpu_notes", "gpu_readings", "reasons", "error")
    facts.tell(
        status=judged.status,
        took=round(time.monotonic() - began, 1),
        rounds=len(judged.item.get("rounds") or ()),
        **{name: judged.item[name] for name in kept if name in judged.item},
    )
    return judged


def read_items(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the results below a folder."""
    for file in sorted(folder.glob("mlms-results/*/results.jsonl")):
        for line in file.read_text().splitlines():
            yield json.loads(line)


def _paths() -> str:
    found = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.pathsep.join(found)
