"""The paths to a GPU, each in an agent: gpu_paths.py with its facts."""

import tempfile
from pathlib import Path

import gpu_paths

from gpu_steps.facts import Facts


def try_way(facts: Facts, device: str, name: str) -> None:
    """Load a network by one path, and hold its outputs against numpy's."""
    (way,) = [way for way in gpu_paths.PATHS if way.name == name]
    bound = "loads, right outputs"
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = gpu_paths.try_path(way, Path(folder), device)
        except gpu_paths.NotRun as reason:
            facts.tell(not_run=str(reason))
            return
        except Exception as error:
            log = Path(folder, "log")
            tail = log.read_text(errors="replace")[-1500:] if log.exists() else ""
            facts.tell(error="%s: %s" % (type(error).__name__, error), log=tail)
            facts.hold("the network", type(error).__name__, bound, False)
            return
    facts.tell(device=found.device, p50=found.p50, layers=found.layers, lines=found.lines)
    times = ", ".join("%.0f µs" % (1e6 * p50) for p50 in found.p50.values())
    shown = "p50 %s; %d layers; %s" % (times, found.layers, found.device)
    facts.hold("the network at batches 1, 64", shown, bound, found.device == device)
