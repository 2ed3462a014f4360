"""ONNX Runtime: ``graph`` is an ONNX file.

Versions: 1.10 and later. Devices: cpu, and cuda:N where this build has the CUDA execution provider and the driver
lists a GPU. Synchronises: session.run returns when its outputs are in host memory.
"""

import ctypes
import functools

import numpy
import onnxruntime
from mlms_predictors import Loaded, Tensor

_CUDA = "CUDAExecutionProvider"


def versions():
    """Return the versions of what computes."""
    return {"onnxruntime": onnxruntime.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    gpus = _count_gpus() if _CUDA in onnxruntime.get_available_providers() else 0
    return ["cpu"] + ["cuda:%d" % index for index in range(gpus)]


def load(request):
    """Open a session on the device asked for; raises RuntimeError where ONNX Runtime would fall back to another."""
    options = onnxruntime.SessionOptions()
    if request.threads:
        options.intra_op_num_threads = request.threads
    kind, _, index = request.device.partition(":")
    provider = (_CUDA, {"device_id": index or "0"}) if kind == "cuda" else ("CPUExecutionProvider", {})
    session = onnxruntime.InferenceSession(request.files["graph"], options, providers=[provider])
    if session.get_providers()[0] != provider[0]:
        raise RuntimeError("asked for %s, ONNX Runtime would use %s" % (provider[0], session.get_providers()[0]))
    inputs, outputs = session.get_inputs(), session.get_outputs()
    return Loaded(session, request.device, request.threads, _tensors(inputs), _tensors(outputs))


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return loaded.model.run(None, arrays)


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    return functools.partial(loaded.model.run, None, arrays)


def _tensors(values):
    return [Tensor(value.name, _dtype(value.type), tuple(map(_axis, value.shape))) for value in values]


def _dtype(kind):
    """Turn ``tensor(float)`` into numpy's name."""
    name = kind[len("tensor(") : -1] if kind.startswith("tensor(") else kind
    return {"float": "float32", "double": "float64"}.get(name, name)


def _axis(size):
    return size if isinstance(size, int) else None


def _count_gpus():
    """Ask the CUDA driver; a GPU build of ONNX Runtime lists its provider on a machine without one too."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if found else 0
