"""Upgrades that people reported as worse, and planted faults, with their truth.

The truth was measured by bare loops, without the plugin: fresh processes of both versions in turns,
on 2 cores of an AMD EPYC. Where kernels depend on the processor it is measured in each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_mlms.core.records import Verdict

__all__ = ["CASES", "PLANT", "KnownCase", "planted_cases"]

PASSED, REGRESSED, IMPROVED = Verdict.PASSED, Verdict.REGRESSED, Verdict.IMPROVED


@dataclass(frozen=True)
class KnownCase:
    """An upgrade whose truth is known.

    ``old`` and ``new`` are stacks as stacks.yaml declares them, ``model`` and ``keys`` make the
    manifest. The verdict must be ``expected``, by one of ``quantities`` where there are any, and
    the item's text must have each of ``told``. With ``bare`` the verdict on latency must be what
    bare loops say, which take these arguments (see known_bare.py).
    """

    name: str
    report: str
    truth: str
    framework: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]
    model: str
    keys: Mapping[str, Any]
    expected: Verdict
    quantities: Sequence[str] = ()
    told: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    pictures: bool = False
    bare: Sequence[str] = ()


def stack(framework: str, *requirements: str, **keys: Any) -> dict[str, Any]:
    """Return the declaration of a stack."""
    return {"framework": framework, "requirements": list(requirements), **keys}


def tensor(name: str, element_type: str = "float32", **keys: Any) -> dict[str, Any]:
    """Return an input or an output of a manifest."""
    return {"name": name, "type": "tensor", "element_type": element_type, **keys}


def tensors(
    *outputs: str, inputs: Sequence[Mapping[str, Any]] = (tensor("x"),), **evaluate: Any
) -> dict[str, Any]:
    """Return the keys of a manifest whose inputs are drawn."""
    return {
        "inputs": list(inputs),
        "outputs": [{"name": name, "type": "tensor"} for name in outputs],
        "evaluate": {"devices": ["cpu"], "batch_sizes": [1], "threads": 1, **evaluate},
    }


PICTURES = {
    "task": "image-classification",
    "inputs": [
        {
            "name": "x",
            "type": "image",
            "element_type": "float32",
            "layout": "NCHW",
            "steps": [
                {"decode": {"color": "RGB"}},
                {"resize": {"size": [64, 64], "method": "bilinear"}},
                {"normalize": {"mean": 0, "scale": 255}},
            ],
        }
    ],
    "outputs": [{"name": "y", "type": "classification", "steps": ["softmax"]}],
    "evaluate": {"devices": ["cpu"], "batch_sizes": [1], "threads": 1, "preprocess": "stack"},
}

ORT, CV, JAX = "onnxruntime", "opencv", "jax"


def ort(version: str, numpy: str = "2.2.6", *others: str, **keys: Any) -> dict[str, Any]:
    """Return a stack of ONNX Runtime."""
    return stack(ORT, f"onnxruntime=={version}", f"numpy=={numpy}", *others, **keys)


def cv(version: str, numpy: str = "numpy<2") -> dict[str, Any]:
    """Return a stack of OpenCV."""
    return stack(CV, f"opencv-python-headless=={version}", numpy)


def jax(version: str, **keys: Any) -> dict[str, Any]:
    """Return a stack of JAX."""
    return stack(
        JAX,
        f"jax=={version}",
        f"jaxlib=={version}",
        "numpy<2",
        "absl-py",
        "flatbuffers",
        **keys,
    )


def _mean_of_channels(name: str, threads: int) -> KnownCase:
    return KnownCase(
        name=name,
        report="opencv/opencv#24198",
        truth=f"garbage with two threads or more; the manifest says {threads}",
        framework=CV,
        old=cv("4.7.0.72"),
        new=cv("4.8.0.74"),
        model="channel_mean",
        keys=tensors("y", threads=threads),
        expected=REGRESSED,
        quantities=["agreement"],
    )


CASES = [
    KnownCase(
        name="ort-gridsample",
        report="microsoft/onnxruntime#27155",
        truth="latency × 1.151",
        framework=ORT,
        old=ort("1.22.0"),
        new=ort("1.23.0"),
        model="gridsample",
        keys=tensors("y", inputs=[tensor("x"), tensor("g")], batch_sizes=[2]),
        expected=REGRESSED,
        quantities=["latency"],
    ),
    KnownCase(
        name="ort-sign",
        report="microsoft/onnxruntime#27115",
        truth="latency × 0.88 on an AMD EPYC",
        framework=ORT,
        old=ort("1.20.1"),
        new=ort("1.21.0"),
        model="sign",
        keys=tensors("y", inputs=[tensor("x", "int64", range=[0, 99])], batch_sizes=[64]),
        expected=IMPROVED,
        bare=["onnxruntime", "model.onnx", "64", "99"],
    ),
    KnownCase(
        name="ort-reducel1",
        report="microsoft/onnxruntime#27093",
        truth="latency × 0.25; the output has no batch axis",
        framework=ORT,
        old=ort("1.20.1"),
        new=ort("1.21.0"),
        model="reducel1",
        keys={
            **tensors("y", inputs=[tensor("x", shape=[2, 64, 56, 56])]),
            "outputs": [{"name": "y", "type": "tensor", "batch": "none"}],
        },
        expected=IMPROVED,
    ),
    KnownCase(
        name="ort-suppression",
        report="no change; how many rows come out depends on the data",
        truth="the same",
        framework=ORT,
        old=ort("1.22.0"),
        new=ort("1.22.1"),
        model="suppression",
        keys={
            **tensors("selected", inputs=[tensor("boxes"), tensor("scores", range=[0, 1])]),
            "outputs": [{"name": "selected", "type": "tensor", "batch": "none"}],
        },
        expected=PASSED,
    ),
    KnownCase(
        name="ort-qdq-load",
        report="microsoft/onnxruntime#18957, #19902",
        truth="load time × 1.75 (53 to 92 ms)",
        framework=ORT,
        old=ort("1.14.1", "1.26.4", python="3.10"),
        new=ort("1.15.1", "1.26.4", python="3.10"),
        model="quantized",
        keys=tensors("y"),
        expected=REGRESSED,
        quantities=["load_time", "start_time"],
    ),
    KnownCase(
        name="ort-normalized-product",
        report="microsoft/onnxruntime#20641, #20808",
        truth="the new release refuses the model",
        framework=ORT,
        old=ort("1.16.3", "1.26.4"),
        new=ort("1.17.1", "1.26.4"),
        model="normalized_product",
        keys=tensors("y"),
        expected=REGRESSED,
        quantities=["crash"],
    ),
    KnownCase(
        name="ort-import",
        report="microsoft/onnxruntime#21063",
        truth="the candidate can't be imported beside numpy 2",
        framework=ORT,
        old=ort("1.22.0"),
        new=ort("1.18.0"),
        model="dense",
        keys=tensors("y"),
        expected=REGRESSED,
        quantities=["crash"],
    ),
    KnownCase(
        name="ort-branches",
        report="microsoft/onnxruntime#16158",
        truth="CPU time × 2.1 and more with parallel execution",
        framework=ORT,
        old=ort("1.13.1", "1.26.4", python="3.10"),
        new=ort("1.14.1", "1.26.4", python="3.10"),
        model="branches",
        keys=tensors("y"),
        expected=REGRESSED,
        quantities=["latency", "latency_p90", "cpu_time", "throughput"],
        options={"execution_mode": "parallel", "inter_op_threads": 2},
    ),
    KnownCase(
        name="cv-three-outputs",
        report="opencv/opencv#22543",
        truth="forward() without names gives another output; latency × 1.02",
        framework=CV,
        old=cv("4.5.5.64"),
        new=cv("4.6.0.66"),
        model="three_outputs",
        keys={
            **tensors("output", "h1", "h2"),
            "thresholds": {"upgrade": {"tolerance": "10 %"}},
        },
        expected=PASSED,
        told=["default output"],
    ),
    KnownCase(
        name="cv-numpy-pin",
        report="opencv/opencv-python#1122",
        truth="numpy 2.4.6 becomes 2.2.6",
        framework=CV,
        old=stack(CV, "opencv-python-headless==4.11.0.86", python="3.11"),
        new=stack(CV, "opencv-python-headless==4.12.0.88", python="3.11"),
        model="three_outputs",
        keys=tensors("output", "h1", "h2"),
        expected=PASSED,
        told=["numpy", "2.2.6"],
    ),
    _mean_of_channels("cv-channel-mean", threads=1),
    _mean_of_channels("cv-channel-mean-2-threads", threads=2),
    KnownCase(
        name="cv-boxes-and-scores",
        report="opencv/opencv#24198",
        truth="scores are wrong by up to 0.39 beside boxes in pixels",
        framework=CV,
        old=cv("4.7.0.72"),
        new=cv("4.8.0.74"),
        model="boxes_and_scores",
        keys=tensors("y", threads=2),
        expected=REGRESSED,
        quantities=["agreement"],
    ),
    KnownCase(
        name="jax-differences",
        report="jax-ml/jax#37465",
        truth="latency × 1.27 to 1.4 on an AMD EPYC",
        framework=JAX,
        old=jax("0.4.31"),
        new=jax("0.4.33"),
        model="differences",
        keys=tensors("y"),
        expected=REGRESSED,
        quantities=["latency", "cpu_time", "throughput"],
        bare=["jax", "model.jax", "1"],
    ),
    KnownCase(
        name="jax-scan",
        report="jax-ml/jax#36799, #26021, #26145",
        truth="latency × 12.5",
        framework=JAX,
        old=jax("0.4.31"),
        new=jax("0.4.33"),
        model="scan",
        keys=tensors("c", "y", inputs=[tensor("x", "float64")]),
        expected=REGRESSED,
        quantities=["latency"],
        options={"jax_enable_x64": True},
    ),
    KnownCase(
        name="pillow-jpeg",
        report="python-pillow/Pillow#6113, #6262, #6536",
        truth="56 % of decoded values differ, by up to 35",
        framework=ORT,
        old=ort("1.22.0", "1.26.4", "pillow==8.4.0", python="3.10"),
        new=ort("1.22.0", "1.26.4", "pillow==12.0.0", python="3.10"),
        model="picture_classes",
        keys=PICTURES,
        expected=REGRESSED,
        quantities=["agreement"],
        pictures=True,
    ),
    KnownCase(
        name="python-3.13",
        report="the same framework on another Python",
        truth="the same speed and memory",
        framework=ORT,
        old=ort("1.23.2", python="3.11"),
        new=ort("1.23.2", python="3.13"),
        model="gridsample",
        keys=tensors("y", inputs=[tensor("x"), tensor("g")], batch_sizes=[2]),
        expected=PASSED,
    ),
]

_PLANTED = {
    "nothing": (PASSED, []),
    "leak of 64 KiB": (REGRESSED, ["memory_growth"]),
    "leak of 1 KiB": (REGRESSED, ["memory_growth"]),
    "slow at first": (REGRESSED, ["warm_up_time"]),
    "stalls": (REGRESSED, ["stalls", "latency_p99", "throughput"]),
    "slow later": (REGRESSED, ["late_latency"]),
    "slow import": (REGRESSED, ["start_time"]),
    "abort at exit": (REGRESSED, ["crash"]),
    "hang at exit": (REGRESSED, ["crash"]),
    "spin": (REGRESSED, ["cpu_time", "idle_cpu"]),
    "NaN": (REGRESSED, ["agreement"]),
    "shape": (REGRESSED, ["agreement"]),
    "float64": (REGRESSED, ["agreement"]),
    "scale": (REGRESSED, ["agreement"]),
    "race": (REGRESSED, ["agreement"]),
}
"""Planted faults: the right verdict, and the quantities that may show it."""

PLANT = '''
"""Stands in front of the real onnxruntime, and plants the fault that PLANT names."""
import atexit, importlib, os, sys, threading, time
here = os.path.dirname(os.path.abspath(__file__))
sys.path = [path for path in sys.path if os.path.abspath(path) != here]
del sys.modules["onnxruntime"]
real = importlib.import_module("onnxruntime")
plant = os.environ["PLANT"]
call, kept, calls = real.InferenceSession.run, [], 0

def run(self, *positional, **named):
    global calls
    calls += 1
    if plant == "leak of 64 KiB":
        kept.append(os.urandom(64) * 1024)
    elif plant == "leak of 1 KiB":
        kept.append(os.urandom(64) * 16)
    elif plant == "slow at first" and 2 <= calls <= 10:
        time.sleep(0.2)
    elif plant == "stalls" and calls % 300 == 0:
        time.sleep(0.02)
    elif plant == "slow later" and calls > 1500:
        time.sleep(0.0005)
    first, *others = call(self, *positional, **named)
    if plant == "NaN":
        first = first.copy()
        first.flat[5] = float("nan")
    elif plant == "shape":
        first = first[..., None]
    elif plant == "float64":
        first = first.astype("float64")
    elif plant == "scale":
        first = first * first.dtype.type(0.991)
    elif plant == "race" and calls % 7 == 0:
        first = first * first.dtype.type(0.9)
    return [first] + others

def burn():
    while True:
        end = time.perf_counter() + 0.004
        while time.perf_counter() < end:
            pass
        time.sleep(0.016)

real.InferenceSession.run = run
if plant == "slow import":
    time.sleep(4)
elif plant == "abort at exit":
    atexit.register(os.abort)
elif plant == "hang at exit":
    threading.Thread(target=time.sleep, args=(40,)).start()
elif plant == "spin":
    threading.Thread(target=burn, daemon=True).start()
sys.modules["onnxruntime"] = real
'''


def planted_cases(folder: str) -> list[KnownCase]:
    """Return a case for each planted fault; ``folder`` has PLANT as onnxruntime.py."""
    return [
        KnownCase(
            name=f"planted {plant}",
            report="planted",
            truth="the same" if plant == "nothing" else "worse",
            framework=ORT,
            old=ort("1.23.0", env={"PYTHONPATH": folder, "PLANT": "none"}),
            new=ort("1.23.0", env={"PYTHONPATH": folder, "PLANT": plant}),
            model="dense",
            keys=tensors("y"),
            expected=expected,
            quantities=quantities,
        )
        for plant, (expected, quantities) in _PLANTED.items()
    ]
