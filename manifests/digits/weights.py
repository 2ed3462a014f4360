"""Read the weights out of digits_cnn.onnx, for scripts that write the network in other formats.

    pip install onnx
    python manifests/digits/weights.py weights.npz

Each ``convert_*.py`` beside this takes that file, since a framework's own environment may not take
onnx. The files for Caffe, Caffe2, CNTK and MXNet are by the scripts in ../convert, which do the
same for any plain CNN.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper


def read_weights() -> dict[str, np.ndarray]:
    """Return the arrays by name.

    They are ``conv2d_0_weight`` (out, in, 3, 3), ``conv2d_0_bias``, …, ``linear_9_weight`` (out,
    in).
    """
    model = onnx.load(Path(__file__).parent / "digits_cnn.onnx")
    return {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}


if __name__ == "__main__":
    np.savez(sys.argv[1], **read_weights())
