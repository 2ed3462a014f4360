"""Plain loops to time a model by: ``PYTHON ci/bare.py FRAMEWORK BATCH GRAPH [WEIGHTS]``.

They are what a person would write. ci/bench runs this beside an agent, in the same interpreter.
Prints "ready", and then a p50 in seconds for each line of its input, which is a number of calls.
Runs on Python 3.6 too, as frameworks' interpreters may.
"""

import os
import sys
import time
from typing import Any, Callable, Dict, List

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
THREADS = 1
WARM_UP = 5
"""Calls before the first that is timed."""

Call = Callable[[], Any]


def onnxruntime(image: Any, graph: str) -> Call:
    """Return a call that gives the logits, as do all of these."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"image": image})


def pytorch(image: Any, graph: str) -> Call:
    """See onnxruntime."""
    import torch

    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    module = torch.export.load(graph).module()
    tensor = torch.from_numpy(image)

    def call() -> Any:
        return module(tensor)["logits"].numpy()

    return call


def tensorflow(image: Any, graph: str) -> Call:
    """See onnxruntime."""
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(THREADS)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    module = tensorflow.saved_model.load(graph)
    function = module.signatures["serving_default"]

    def call(keep: Any = module) -> Any:
        return function(image=tensorflow.constant(image))["logits"].numpy()

    return call


def tflite(image: Any, graph: str) -> Call:
    """See onnxruntime."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(graph, num_threads=THREADS)
    source = interpreter.get_input_details()[0]["index"]
    sink = interpreter.get_output_details()[0]["index"]
    interpreter.resize_tensor_input(source, image.shape)
    interpreter.allocate_tensors()

    def call() -> Any:
        interpreter.set_tensor(source, image)
        interpreter.invoke()
        return interpreter.get_tensor(sink)

    return call


def jax(image: Any, graph: str) -> Call:
    """See onnxruntime."""
    os.environ["NPROC"] = str(THREADS)
    import jax
    from jax import export

    with open(graph, "rb") as file:
        exported = export.deserialize(bytearray(file.read()))
    compiled = jax.jit(exported.call).lower(image=image).compile()
    return lambda: numpy.asarray(compiled(image=image)["logits"])


def openvino(image: Any, graph: str) -> Call:
    """See onnxruntime."""
    import openvino

    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": THREADS,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = openvino.Core().compile_model(graph, "CPU", config)
    request = compiled.create_infer_request()
    return lambda: request.infer([image])[0]


def opencv(image: Any, graph: str) -> Call:
    """See onnxruntime."""
    import cv2

    cv2.setNumThreads(THREADS)
    net = cv2.dnn.readNet(graph)

    def call() -> Any:
        net.setInput(image, "image")
        return net.forward("logits")

    return call


def mxnet(image: Any, graph: str, weights: str) -> Call:
    """See onnxruntime."""
    import mxnet

    symbol = mxnet.sym.load(graph)
    executor = symbol.simple_bind(mxnet.cpu(), grad_req="null", image=image.shape)
    stored = {}
    for name, value in mxnet.nd.load(weights).items():
        if name.startswith("arg:"):
            stored[name[len("arg:") :]] = value
    executor.copy_params_from(stored)

    def call() -> Any:
        executor.arg_dict["image"][:] = image
        return executor.forward(is_train=False)[0].asnumpy()

    return call


def caffe(image: Any, graph: str, weights: str) -> Call:
    """See onnxruntime."""
    import caffe

    net = caffe.Net(graph, weights, caffe.TEST)
    net.blobs["image"].reshape(*image.shape)
    net.reshape()

    def call() -> Any:
        net.blobs["image"].data[...] = image
        return net.forward()["logits"].copy()

    return call


def caffe2(image: Any, graph: str, weights: str) -> Call:
    """See onnxruntime."""
    import torch
    from caffe2.proto import caffe2_pb2
    from caffe2.python import workspace

    torch.set_num_threads(THREADS)

    def read(path: str) -> Any:
        net = caffe2_pb2.NetDef()
        with open(path, "rb") as file:
            net.ParseFromString(file.read())
        return net

    workspace.RunNetOnce(read(weights))
    workspace.FeedBlob("image", image)
    net = read(graph)
    workspace.CreateNet(net)
    name = net.name

    def call() -> Any:
        workspace.FeedBlob("image", image)
        workspace.RunNet(name)
        return workspace.FetchBlob("logits")

    return call


def cntk(image: Any, graph: str) -> Call:
    """See onnxruntime."""
    from cntk import Function, cntk_py

    cntk_py.set_max_num_cputhreads(THREADS)
    function = Function.load(graph)
    source = function.arguments[0]
    return lambda: function.eval({source: image})


LOOPS: Dict[str, Callable[..., Call]] = {
    "onnxruntime": onnxruntime,
    "pytorch": pytorch,
    "tensorflow": tensorflow,
    "tflite": tflite,
    "jax": jax,
    "openvino": openvino,
    "opencv": opencv,
    "mxnet": mxnet,
    "caffe": caffe,
    "caffe2": caffe2,
    "cntk": cntk,
}


def p50(call: Call, count: int) -> float:
    """Return the median time of ``count`` calls, in seconds."""
    clock = time.perf_counter
    taken: List[float] = []
    for _ in range(count):
        before = clock()
        call()
        taken.append(clock() - before)
    return float(numpy.median(taken))


def batch_of(size: int) -> Any:
    """Return digits in an array that has the strides of arrays in frames."""
    path = os.path.join(HERE, os.pardir, "manifests", "digits", "digits_test.npz")
    image = numpy.empty((size, 1, 8, 8), numpy.float32)
    image[:, 0] = numpy.load(path)["image"][:size] / 16
    return image


def main() -> None:
    """Answer each line with a p50, on a channel that the framework's own prints don't reach."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.remove(HERE)
    name, size, *files = sys.argv[1:]
    call = LOOPS[name](batch_of(int(size)), *files)
    p50(call, WARM_UP)
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        replies.write("%r\n" % p50(call, int(line)))
        replies.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
