"""Lines of results, made up, for what shows them."""

from __future__ import annotations

from typing import Any

__all__ = ["HOSTILE", "broken_limit", "line_of", "traced", "undecided", "upgrade", "with_versions"]

HOSTILE = "a|b`c\n::error::d<script>alert(1)</script>\"'&amp;%0A"
"""A name that begins what it must not in Markdown, in HTML and in the log of GitHub."""


def line_of(number: int = 1, verdict: str = "PASSED", **fields: Any) -> dict[str, Any]:
    """Return the line of a performance item of a manifest in models/."""
    case = f"here-cpu-b{number}"
    line = {
        "nodeid": f"models/m.yaml::test_performance[{case}]",
        "place": "models/m.yaml:9",
        "case": case,
        "kind": "performance",
        "verdict": verdict,
        "outcome": "passed",
        "message": None,
        "margin": 0.5,
        "manifest": {"path": "models/m.yaml", "name": "digits", "version": "1.0.0"},
        "framework": "onnxruntime",
        "device": "cpu",
        "stack": {"name": "here"},
        "estimates": {"latency_p50": estimate(0.004, 0.003, 0.005)},
        "limits": [limit("PASSED", 0.01)],
        "artifacts": {},
    }
    return {**line, **fields}


def estimate(value: float, low: float, high: float | None, unit: str = "s") -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "unit": unit, "lacking": "", "replicates": 3}


def limit(verdict: str, most: float, line: int = 88) -> dict[str, Any]:
    place = f"models/m.yaml:{line}"
    return {"quantity": "latency_p50", "max": most, "place": place, "verdict": verdict}


def broken_limit(number: int = 1, **fields: Any) -> dict[str, Any]:
    """Return an item that failed; the larger its number, the further it is from its limit."""
    bad = {
        "outcome": "failed",
        "margin": -number,
        "limits": [limit("PASSED", 1, 87), limit("FAILED", 0.001)],
        "message": f"digits b{number}: latency_p50 is not at most 1.00 ms\n  limit set by m.yaml:88",
    }
    return line_of(number, "FAILED", **{**bad, **fields})


def undecided(number: int = 1) -> dict[str, Any]:
    limits = [limit("INCONCLUSIVE", 0.004)]
    message = "latency_p50 is not shown to be at most 4.00 ms"
    return line_of(
        number, "INCONCLUSIVE", outcome="undecided", margin=-0.25, limits=limits, message=message
    )


def upgrade(number: int = 1) -> dict[str, Any]:
    """Return an upgrade that is slower than its tolerance."""
    comparison = {
        "quantity": "latency",
        "a": 264e-6,
        "b": 285e-6,
        "unit": "s",
        "tolerance": 0.03,
        "gate": True,
        "replicates": 3,
        "of": "rounds",
        "lacking": "",
        "ratio": 1.079,
        "low": 1.071,
        "high": 1.088,
        "verdict": "REGRESSED",
        "floor": 0.009,
        "detectable": 0.042,
        "least_change": 0.0,
    }
    line = line_of(number, "REGRESSED", outcome="failed", place="models/m.yaml:95")
    del line["limits"]
    return {
        **line,
        "kind": "upgrade",
        "estimates": {},
        "comparisons": [comparison],
        "terms": {"places": {"latency": "models/m.yaml:95"}},
        "message": "onnxruntime 2 (B) against onnxruntime 1 (A): REGRESSED in latency",
    }


def traced(**fields: Any) -> dict[str, Any]:
    """Return a trace item whose model has a known structure."""
    convolutions = {"type": "Conv", "layers": 2, "parameters": 23_500_000, "flops": 8_170_000_000}
    products = {"type": "Gemm", "layers": 1, "parameters": 2_049_000, "flops": 4_000_000}
    cost = {
        "layers": 3,
        "parameters": 25_549_000,
        "flops": 8_174_000_000,
        "weight_bytes": 102_196_000,
        "activation_bytes": 41_000_000,
        "peak_bytes": None,
        "counter": "onnx",
        "types": [
            {**convolutions, "weight_bytes": 94_000_000, "output_bytes": 40_996_000},
            {**products, "weight_bytes": 8_196_000, "output_bytes": 4_000},
        ],
        "unknown": ["Loop"],
    }
    trace = {
        "levels": ["model", "layer"],
        "runs": [],
        "coverage": None,
        "layers": 0,
        "slowest": [],
        "ambiguous": 0,
        "unseen": {},
        "faults": {},
        "cost": cost,
    }
    line = line_of(estimates={}, limits=[], kind="trace", trace=trace, **fields)
    return {**line, "nodeid": f"models/m.yaml::test_trace[{line['case']}]"}


def with_versions(line: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    """Return an upgrade whose rounds name the versions of both sides."""
    sides = {
        side: {"versions": {"onnxruntime": version}, "python": "3"}
        for side, version in (("a", before), ("b", after))
    }
    return {**line, "against": {"name": "old"}, "rounds": [{"figures": {}, "sides": sides}]}
