"""The paths to a GPU: for each, a predictor, the digits network in a form of its, and an agent.

It needs numpy and the framework, from Python 3.6 on; this project need not be installed. Each path
loads the network in an agent, compares the outputs with numpy's, times it, asks for its layers, and
uses every probe for GPUs. ci/gpu.py runs them, each in a process of its own.
"""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

Fields = Dict[str, Any]
"""The fields of a request or a reply."""
Feed = List[Tuple[str, Any]]
"""The arrays of a request, with their names."""

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "manifests" / "digits"
BATCHES = (1, 64)
RTOL = 1e-4
ATOL = 1e-4


class Way(NamedTuple):
    """A path to a GPU: a predictor, what it loads, and the script that makes that if need be.

    ``variables`` are those of its agents, by name.
    """

    name: str
    predictor: str
    file: str
    options: Fields
    weights: str = ""
    made_by: str = ""
    variables: Tuple[Tuple[str, str], ...] = ()


FP32 = {"tf32": False}  # throughout, since TF32 differs by 1e-3
TENSORRT = {"provider": "tensorrt"}
NO_TF32 = (("NVIDIA_TF32_OVERRIDE", "0"),)  # for what has no option of it
COMPILED = {"tf32": False, "mode": "compile"}
GRAPH = {"tf32": False, "cuda_graph": True}
SCRIPTED = {"tf32": False, "inputs": "image float32[?,1,8,8]", "outputs": "logits"}
STATE = dict(SCRIPTED, **{"class": "Digits"})
EXACT = {"precision": "highest"}
ENGINE = {"precision": "fp32"}

ONNX = "digits_cnn.onnx"
PROGRAM = "digits_cnn.pt2"
SCRIPT = "digits_cnn.pt"
PYTORCH = "convert_pytorch.py"
SAVED_MODEL = "digits_cnn_savedmodel.zip"

PATHS = [
    Way("onnxruntime, CUDA", "onnxruntime", ONNX, FP32),
    Way("onnxruntime, TensorRT", "onnxruntime", ONNX, TENSORRT, variables=NO_TF32),
    Way("pytorch, .pt2 eager", "pytorch", PROGRAM, FP32, made_by=PYTORCH),
    Way("pytorch, .pt2 compiled", "pytorch", PROGRAM, COMPILED, made_by=PYTORCH),
    Way("pytorch, CUDA graph", "pytorch", PROGRAM, GRAPH, made_by=PYTORCH),
    Way("pytorch, TorchScript", "pytorch", SCRIPT, SCRIPTED, made_by=PYTORCH),
    Way("pytorch, state dict", "pytorch", PYTORCH, STATE, "digits_state.pt", PYTORCH),
    Way("tensorflow, SavedModel", "tensorflow", SAVED_MODEL, FP32),
    Way("jax, StableHLO", "jax", "digits_cnn.jax", EXACT),
    Way("tensorrt, from ONNX", "tensorrt", ONNX, ENGINE),
]


class NotRun(Exception):
    """A path that cannot be run; the text says what this machine does not have."""


class Answer(NamedTuple):
    """The fields and the arrays, by name, of an agent's reply."""

    fields: Fields
    arrays: Dict[str, Any]


class Result(NamedTuple):
    """A path that ran: the device, p50 in seconds by batch size, the number of layers.

    ``lines`` say what the probes saw.
    """

    device: str
    p50: Dict[int, float]
    layers: int
    lines: List[str]


class Agent:
    """An agent of one predictor in this interpreter, with its log in a file."""

    def __init__(self, predictor: str, log: Path, **variables: str) -> None:
        worker = ROOT / "predictors" / "_run" / "worker.py"
        file = ROOT / "predictors" / (predictor + ".py")
        with open(str(log), "wb") as errors:
            process: Any = subprocess.Popen(
                [sys.executable, "-s", "-B", str(worker), str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env=dict(os.environ, **variables),
            )
        self._process = process

    def ask(
        self,
        kind: str,
        fields: Optional[Fields] = None,
        arrays: Optional[Feed] = None,
    ) -> Answer:
        """Return the answer to a request.

        Raises NotRun where the framework cannot be imported, RuntimeError for any other error.
        """
        from mlms_predictors._run import protocol

        for buffer in protocol.encode(dict(fields or {}, type=kind), arrays or []):
            self._process.stdin.write(buffer)
        self._process.stdin.flush()
        try:
            answer, named = protocol.read_frame(self._process.stdout)
        except EOFError:
            status = self._process.wait()
            raise RuntimeError(f"the agent died: exit status {status}") from None
        if answer["type"] == "error":
            raise self._error(answer)
        return Answer(answer, dict(named))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _error(self, answer: Fields) -> Exception:
        first_line = answer["message"].strip().partition("\n")[0]
        text = f"{answer['error']}: {first_line}"
        if answer["error"] in ("ImportError", "ModuleNotFoundError"):
            return NotRun(text)
        return RuntimeError(text)


def images(count: int) -> Any:
    """Return the first held-out images as the network takes them."""
    import numpy

    pixels = numpy.load(str(DIGITS / "digits_test.npz"))["image"]
    chosen = pixels[:count, None]
    return (chosen / 16).astype(numpy.float32)


SHAPES = {
    "conv2d_0_weight": (16, 1, 3, 3),
    "conv2d_2_weight": (32, 16, 3, 3),
    "conv2d_5_weight": (64, 32, 3, 3),
    "linear_9_weight": (10, 256),
}


def weights() -> Dict[str, Any]:
    """Read the weights out of the ONNX file, without the package onnx."""
    import numpy
    from mlms_predictors._run.protobuf import last_value, values

    model = (DIGITS / ONNX).read_bytes()
    graph = last_value(model, 7)  # ModelProto.graph
    found = {}
    for tensor in values(graph, 5):  # GraphProto.initializer
        name = bytes(last_value(tensor, 8)).decode()  # TensorProto.name
        data = last_value(tensor, 9)  # TensorProto.raw_data
        array = numpy.frombuffer(data, numpy.float32)
        found[name] = array.reshape(SHAPES.get(name, array.shape))
    return found


def reference(batch: Any) -> Any:
    """Return the logits by numpy in double precision."""
    import numpy

    arrays = weights()
    x = batch.astype(numpy.float64)
    x = convolve(x, arrays["conv2d_0_weight"], arrays["conv2d_0_bias"])
    x = convolve(x, arrays["conv2d_2_weight"], arrays["conv2d_2_bias"])
    x = halve(x)
    x = convolve(x, arrays["conv2d_5_weight"], arrays["conv2d_5_bias"])
    x = halve(x)
    features = x.reshape(len(x), -1)
    return features @ arrays["linear_9_weight"].T + arrays["linear_9_bias"]


def convolve(x: Any, kernel: Any, bias: Any) -> Any:
    """Return a 3 x 3 convolution of square images that keeps their size, and ReLU."""
    import numpy

    outputs = len(kernel)
    side = x.shape[2]
    padded = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="constant")
    shifted = []
    for row in range(3):
        for column in range(3):
            shifted.append(padded[:, :, row : row + side, column : column + side])
    taps = numpy.stack(shifted, 2).reshape(len(x), -1, side * side)
    rows = kernel.reshape(outputs, -1)
    sums = numpy.einsum("ok,nkp->nop", rows, taps)
    biased = sums + bias[:, None]
    images = biased.reshape(len(x), outputs, side, side)
    return numpy.maximum(images, 0)


def halve(x: Any) -> Any:
    """Return the maxima of squares of 2 x 2."""
    count, channels, side, _ = x.shape
    half = side // 2
    squares = x.reshape(count, channels, half, 2, half, 2)
    return squares.max((3, 5))


def prepare(way: Way, folder: Path) -> Dict[str, str]:
    """Return the paths of a path's files, unpacked or made where they must be."""
    if way.made_by:
        make(way.made_by, folder)
    graph = folder / way.file
    if not graph.exists():
        graph = DIGITS / way.file
    if way.file.endswith(".zip"):
        unpacked = folder / "graph"
        with zipfile.ZipFile(str(graph)) as archive:
            archive.extractall(str(unpacked))
        graph = unpacked
    files = {"graph": str(graph)}
    if way.weights:
        files["weights"] = str(folder / way.weights)
    return files


def make(script: str, folder: Path) -> None:
    """Make the files of a framework; raises RuntimeError where its script fails."""
    import numpy

    stored = folder / "weights.npz"
    numpy.savez(str(stored), **weights())
    done = subprocess.run(
        [sys.executable, "-B", str(DIGITS / script), str(stored), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        text = done.stdout.decode(errors="replace")
        raise RuntimeError(f"{script} failed: {text[-200:]}")


def try_path(way: Way, folder: Path, device: str = "cuda:0") -> Result:
    """Run one path.

    Raises NotRun where something is missing, AssertionError where the outputs are wrong, and
    RuntimeError for all else.
    """
    from mlms_predictors._run.options import layer_variables_of

    agent = Agent(way.predictor, folder / "log", **dict(way.variables))
    try:
        used = load(agent, way, folder, device)
        p50 = {}
        for size in BATCHES:
            feed = [("image", images(size))]
            check_outputs(agent, feed)
            p50[size] = time_calls(agent, feed)
        lines = list(use_probes(agent, feed)) + list(ask_for_costs(agent))
        variables = layer_variables_of(ROOT / "predictors" / (way.predictor + ".py"))
        if device == "cpu" or not variables:
            return Result(used, p50, count_layers(agent, feed), lines)
    finally:
        agent.close()
    agent = Agent(way.predictor, folder / "log", **dict(way.variables, **variables))
    try:
        load(agent, way, folder, device)
        return Result(used, p50, count_layers(agent, feed), lines)
    finally:
        agent.close()


def load(agent: Agent, way: Way, folder: Path, device: str) -> str:
    """Load the network; return the device that it uses."""
    hello = agent.ask("hello").fields
    if device not in hello["devices"]:
        version = hello["versions"][way.predictor]
        known = ", ".join(hello["devices"]) or "none"
        raise NotRun(f"no GPU: {way.predictor} {version} lists {known}")
    request = {
        "files": prepare(way, folder),
        "device": device,
        "threads": None,
        "options": way.options,
        "allow_code": True,  # it is our own
    }
    used: str = agent.ask("load", request).fields["device"]
    if used != device:
        raise RuntimeError(f"asked for {device}, it runs on {used}")
    return used


def check_outputs(agent: Agent, feed: Feed) -> None:
    """Raise AssertionError where the outputs are not those of the reference."""
    import numpy

    logits = agent.ask("predict", arrays=feed).arrays["logits"]
    numpy.testing.assert_allclose(logits, reference(feed[0][1]), rtol=RTOL, atol=ATOL)


def time_calls(agent: Agent, feed: Feed) -> float:
    """Return the p50 of a call in seconds, after a shorter run that warms up."""
    import numpy

    warm_up = {"seconds": 0.3, "least": 100, "longest": 20}
    stop = {"seconds": 1, "least": 100, "longest": 20}
    agent.ask("run", {"scenario": "single_stream", "batches": 1, "stop": warm_up}, feed)
    times = agent.ask("run", {"scenario": "single_stream", "stop": stop}).arrays
    return float(numpy.median(times["time:end"] - times["time:start"]))


def count_layers(agent: Agent, feed: Feed) -> int:
    """Return the number of layers of a call; raises RuntimeError if one lies outside of it."""
    profiles = agent.ask("profile", {"count": 2}, feed).fields["profiles"]
    start, _, layers = profiles[1]
    inside = all(start <= layer[2] <= layer[3] for layer in layers)
    if not layers or not inside:
        raise RuntimeError(f"its layers don't lie in the call: {profiles[1]}")
    return len(layers)


def use_probes(agent: Agent, feed: Feed) -> Iterator[str]:
    """Yield a line for each probe: what it saw, or why it could not be used."""
    of_kernels = {"level": "kernel", "probes": ["cupti", "kineto"], "count": 3}
    of_hardware = {"level": "hardware", "probes": ["nvml", "gpm"], "count": 200}
    yield from trace(agent, feed, of_kernels)
    yield from trace(agent, feed, of_hardware)


def trace(agent: Agent, feed: Feed, header: Fields) -> Iterator[str]:
    """Yield a line for each probe of a traced run."""
    header = dict(header, plain=2, options={})
    fields, arrays = agent.ask("trace", header, feed)
    spans = []
    for number, name in enumerate(fields["levels"]):
        found = int((arrays["span_level"] == number).sum())
        spans.append(f"{found} x {name}")
    counters = sorted({name for name, _, _ in fields["series"]})
    seen = ", ".join(spans) + "; " + ", ".join(counters)
    for status in fields["probes"]:
        text = seen if status["available"] else status["reason"]
        yield f"{header['level']} by {status['probe']}: {text} {status['fault']}".strip()


def ask_for_costs(agent: Agent) -> Iterator[str]:
    """Yield a line on the peaks of the device, and one on the operations of the model."""
    try:
        peaks = agent.ask("peaks").fields
        teraflops = peaks["flops"] / 1e12
        gigabytes = peaks["bytes"] / 1e9
        yield f"peaks: {teraflops:.3g} TFLOP/s, {gigabytes:.4g} GB/s; {peaks['how']}"
    except (NotRun, RuntimeError) as error:
        yield f"peaks: {error}"
    try:
        structure = agent.ask("structure", {"shapes": {"image": [64, 1, 8, 8]}}).fields
        flops = sum(layer[2] or 0 for layer in structure["layers"])
        yield f"structure: {flops:,} FLOPs by {structure['counter']}"
    except (NotRun, RuntimeError) as error:
        yield f"structure: {error}"


def share() -> None:
    """Make the agent side importable as mlms_predictors, whether it is installed or not."""
    if "mlms_predictors" in sys.modules:
        return
    folder = ROOT / "predictors"
    spec: Any = importlib.util.spec_from_file_location(
        "mlms_predictors",
        str(folder / "__init__.py"),
        submodule_search_locations=[str(folder)],
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["mlms_predictors"] = module
    spec.loader.exec_module(module)
