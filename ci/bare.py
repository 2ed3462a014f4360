"""What a person would write to time a model: ``PYTHON ci/bare.py FRAMEWORK BATCH GRAPH [WEIGHTS]``.

ci/bench runs this beside an agent, in the same interpreter. Prints "ready", and then a p50 in
seconds for each line of its input, which is a number of calls. Runs on Python 3.6 too, as
frameworks' interpreters may.
"""

import os
import sys
import time

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
THREADS = 1


def onnxruntime(image, graph):
    """Return a call that gives the logits, as do all of these."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"image": image})


def pytorch(image, graph):
    """See onnxruntime."""
    import torch

    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    module, tensor = torch.export.load(graph).module(), torch.from_numpy(image)
    return lambda image=tensor: module(image)["logits"].numpy()


def tensorflow(image, graph):
    """See onnxruntime."""
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(THREADS)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    module = tensorflow.saved_model.load(graph)
    function = module.signatures["serving_default"]
    return lambda keep=module: function(image=tensorflow.constant(image))["logits"].numpy()


def tflite(image, graph):
    """See onnxruntime."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(graph, num_threads=THREADS)
    source, sink = (
        interpreter.get_input_details()[0]["index"],
        interpreter.get_output_details()[0]["index"],
    )
    interpreter.resize_tensor_input(source, image.shape)
    interpreter.allocate_tensors()

    def call():
        interpreter.set_tensor(source, image)
        interpreter.invoke()
        return interpreter.get_tensor(sink)

    return call


def jax(image, graph):
    """See onnxruntime."""
    os.environ["NPROC"] = str(THREADS)
    import jax
    from jax import export

    with open(graph, "rb") as file:
        exported = export.deserialize(bytearray(file.read()))
    compiled = jax.jit(exported.call).lower(image=image).compile()
    return lambda: numpy.asarray(compiled(image=image)["logits"])


def openvino(image, graph):
    """See onnxruntime."""
    import openvino

    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": THREADS,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = openvino.Core().compile_model(graph, "CPU", config).create_infer_request()
    return lambda: request.infer([image])[0]


def opencv(image, graph):
    """See onnxruntime."""
    import cv2

    cv2.setNumThreads(THREADS)
    net = cv2.dnn.readNet(graph)

    def call():
        net.setInput(image, "image")
        return net.forward("logits")

    return call


def mxnet(image, graph, weights):
    """See onnxruntime."""
    import mxnet

    symbol = mxnet.sym.load(graph)
    executor = symbol.simple_bind(mxnet.cpu(), grad_req="null", image=image.shape)
    stored = mxnet.nd.load(weights)
    executor.copy_params_from(
        {name[len("arg:") :]: value for name, value in stored.items() if name[:4] == "arg:"}
    )

    def call():
        executor.arg_dict["image"][:] = image
        return executor.forward(is_train=False)[0].asnumpy()

    return call


def caffe(image, graph, weights):
    """See onnxruntime."""
    import caffe

    net = caffe.Net(graph, weights, caffe.TEST)
    net.blobs["image"].reshape(*image.shape)
    net.reshape()

    def call():
        net.blobs["image"].data[...] = image
        return net.forward()["logits"].copy()

    return call


def caffe2(image, graph, weights):
    """See onnxruntime."""
    import torch
    from caffe2.proto import caffe2_pb2
    from caffe2.python import workspace

    torch.set_num_threads(THREADS)
    nets = []
    for path in (weights, graph):
        nets.append(caffe2_pb2.NetDef())
        with open(path, "rb") as file:
            nets[-1].ParseFromString(file.read())
    workspace.RunNetOnce(nets[0])
    workspace.FeedBlob("image", image)
    workspace.CreateNet(nets[1])
    name = nets[1].name

    def call():
        workspace.FeedBlob("image", image)
        workspace.RunNet(name)
        return workspace.FetchBlob("logits")

    return call


def cntk(image, graph):
    """See onnxruntime."""
    from cntk import Function, cntk_py

    cntk_py.set_max_num_cputhreads(THREADS)
    function = Function.load(graph)
    source = function.arguments[0]
    return lambda: function.eval({source: image})


def p50(call, count):
    """Return the median time of ``count`` calls, in seconds."""
    clock, taken = time.perf_counter, []
    for _ in range(count):
        before = clock()
        call()
        taken.append(clock() - before)
    return float(numpy.median(taken))


def main():
    """Answer each line with a p50, on a channel that the framework's own prints don't reach."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.remove(HERE)
    name, batch, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    images = numpy.load(os.path.join(HERE, os.pardir, "manifests", "digits", "digits_test.npz"))[
        "image"
    ]
    image = numpy.empty(
        (batch, 1, 8, 8), numpy.float32
    )  # with the strides that arrays in frames have
    image[:, 0] = images[:batch] / 16
    call = globals()[name](image, *files)
    p50(call, 5)
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        replies.write(f"{p50(call, int(line))!r}\n")
        replies.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
