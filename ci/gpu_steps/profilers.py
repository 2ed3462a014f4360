"""CUPTI, Kineto, XLA's profile and Nsight Compute beside CUDA's events and each other."""

from __future__ import annotations

import glob
import sys
import tempfile
from typing import Any, NamedTuple

from gpu_steps.facts import Facts
from gpu_steps.machine import shell
from gpu_steps.torch_work import Work, event_us, products, warmed

__all__ = ["both", "cupti_first", "jax_planes", "kineto_first", "ncu"]

COUNT = 10  # calls that a profiler observes
MOST = 0.01
_NCU = "ncu --clock-control none -k regex:gemm -c 2 --metrics gpu__time_duration.sum"
_PRODUCTS = """
import torch
a = torch.randn(4096, 4096, device='cuda')
[a @ a for _ in range(3)]
torch.cuda.synchronize()
"""


class Observed(NamedTuple):
    """The observation of a probe: its kernels, and the microseconds of those of one call.

    ``refused`` is why it could not observe.
    """

    kernels: int
    us: float
    refused: str = ""


def cupti_first(facts: Facts, device: str) -> None:
    """Hold CUPTI against CUDA's events, and then against Kineto in the same process."""
    work = warmed(products(device))
    events = event_us(work)
    cupti = observe(facts, "cupti", work, device)
    kineto = observe(facts, "kineto", work, device)
    again = observe(facts, "cupti", work, device)
    compare(facts, "CUPTI beside events", cupti, events)
    compare(facts, "CUPTI beside Kineto", cupti, kineto.us)
    compare(facts, "CUPTI after Kineto, beside events", again, event_us(work))
    alike = 0 < cupti.kernels == kineto.kernels
    facts.hold("kernels by CUPTI, Kineto", f"{cupti.kernels}, {kineto.kernels}", "alike", alike)


def kineto_first(facts: Facts, device: str) -> None:
    """Hold Kineto against events; then CUPTI, where Kineto has let it go."""
    work = warmed(products(device))
    events = event_us(work)
    kineto = observe(facts, "kineto", work, device)
    cupti = observe(facts, "cupti", work, device)
    compare(facts, "Kineto beside events", kineto, events)
    compare(facts, "CUPTI after Kineto, beside it", cupti, kineto.us)


def both(facts: Facts, device: str) -> None:
    """Tell what CUPTI loses where Kineto observes within its time; held to no bound."""
    work = warmed(products(device))
    from mlms_predictors._run.probes import open_probe

    with open_probe("cupti", device, "kernel") as probe:
        work()
        kineto = observe_by_profiler(work)
        work()
        _synchronize()
    seen = sum(span.level == "kernel" for span in probe.spans)
    expected = kineto // COUNT * (COUNT + 2)
    shown = f"{seen} of {expected}; Kineto {kineto}; {probe.fault or 'no fault'}"
    facts.figure("kernels by CUPTI with Kineto inside", shown)


def observe(facts: Facts, name: str, work: Work, device: str) -> Observed:
    """Return what a probe of this project sees of some calls; all of it is told."""
    from mlms_predictors._run.probes import open_probe

    try:
        with open_probe(name, device, "kernel") as probe:
            for _ in range(COUNT):
                work()
            _synchronize()
    except Exception as error:
        facts.tell(probe=name, refused=f"{type(error).__name__}: {error}")
        return Observed(0, 0, str(error))
    kernels = [span for span in probe.spans if span.level == "kernel"]
    calls = [span for span in probe.spans if span.level == "library"]
    launches = {span.correlation for span in calls}
    facts.tell(
        probe=name,
        kernels=len(kernels),
        names=sorted({span.name[:80] for span in kernels})[:8],
        calls=sorted({span.name for span in calls})[:12],
        with_launch=sum(span.correlation in launches for span in kernels),
        fault=probe.fault,
    )
    us = sum(span.end - span.start for span in kernels) / 1e3 / COUNT
    return Observed(len(kernels), us)


def compare(facts: Facts, what: str, seen: Observed, expected: float) -> None:
    """Hold two times of one call against each other; a probe that was refused has none."""
    if seen.refused:
        facts.figure(what, f"refused: {seen.refused}")
    elif not seen.us or not expected:
        facts.hold(what, "nothing was seen", f"≤ {MOST:.0%}", False)
    else:
        facts.hold_share(what, seen.us / expected - 1, MOST)


def observe_by_profiler(work: Work) -> int:
    """Return how many kernels PyTorch's profiler sees of some calls."""
    import torch

    activity = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[activity]) as profile:
        for _ in range(COUNT):
            work()
        _synchronize()
    events = profile.profiler.kineto_results.events()
    return sum("CPU" not in str(event.device_type()) for event in events)


def jax_planes(facts: Facts, device: str) -> None:
    """Tell which planes of XLA's profile name operations: the predictor takes those as layers."""
    import jax
    import jax.numpy as jnp

    size = 256 if device == "cpu" else 2048
    x = jnp.ones((size, size))
    call = jax.jit(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w).sum(axis=0))
    call(x, x).block_until_ready()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            call(x, x).block_until_ready()
        (path,) = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
        planes = list(_planes(jax.profiler.ProfileData.from_file(path)))
    facts.tell(used=str(jax.devices()[0]), planes=planes)
    shown = "; ".join(f"{plane}/{line}: {named}" for plane, line, named, _ in planes) or "none"
    facts.figure("planes of XLA's profile that name operations", shown)


def _planes(profile: Any) -> Any:
    """Yield the name of each plane and line with operations, their number, and some of them."""
    for plane in profile.planes:
        for line in plane.lines:
            named = [event for event in line.events if "hlo_op" in dict(event.stats)]
            some = [(event.name[:40], round(event.duration_ns / 1e3, 1)) for event in named[:4]]
            if named:
                yield plane.name, line.name, len(named), some


def ncu(facts: Facts, device: str) -> None:
    """Tell what Nsight Compute says of a product beside events: whether it may read counters."""
    import torch

    facts.tell(ncu=shell(f'{_NCU} {sys.executable} -c "{_PRODUCTS}" 2>&1 | tail -25', 38)[-1500:])
    a = torch.randn(4096, 4096, device=device)
    facts.figure("a product of 4096², events", f"{event_us(lambda: a @ a):.0f} µs")


def _synchronize() -> None:
    import torch

    torch.cuda.synchronize()
