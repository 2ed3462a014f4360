"""Write the digits network for PyTorch: digits_cnn.pt2, and the other formats on demand.

    pip install torch==2.13.0 numpy
    python manifests/digits/convert_pytorch.py weights.npz [FOLDER]

With a FOLDER it writes there: digits_cnn.pt2 (torch.export), digits_cnn.pt (TorchScript), and
digits_state.pt (a state dict for ``Digits`` in this file). weights.npz is by weights.py.
"""

import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Digits(nn.Module):
    """Three convolutions and one dense layer; the layers have the names of the ONNX file's."""

    def __init__(self):
        super().__init__()
        self.conv2d_0 = nn.Conv2d(1, 16, 3, padding=1)
        self.relu_1 = nn.ReLU()
        self.conv2d_2 = nn.Conv2d(16, 32, 3, padding=1)
        self.relu_3 = nn.ReLU()
        self.maxpool2d_4 = nn.MaxPool2d(2)
        self.conv2d_5 = nn.Conv2d(32, 64, 3, padding=1)
        self.relu_6 = nn.ReLU()
        self.maxpool2d_7 = nn.MaxPool2d(2)
        self.flatten_8 = nn.Flatten()
        self.linear_9 = nn.Linear(256, 10)

    def forward(self, image):
        """Take images N x 1 x 8 x 8; return the logits N x 10 by their name."""
        x = self.relu_1(self.conv2d_0(image))
        x = self.maxpool2d_4(self.relu_3(self.conv2d_2(x)))
        x = self.maxpool2d_7(self.relu_6(self.conv2d_5(x)))
        return {"logits": self.linear_9(self.flatten_8(x))}


def with_weights(path):
    """Return the network with the weights of an .npz file, whose names differ in the last
    underscore.
    """
    arrays = np.load(path)
    model = Digits().eval()
    model.load_state_dict(
        OrderedDict((".".join(n.rsplit("_", 1)), torch.from_numpy(arrays[n])) for n in arrays.files)
    )
    return model


def export(model, path):
    """Write the network with a free batch size."""
    shapes = {"image": {0: torch.export.Dim("batch", min=1, max=65536)}}
    program = torch.export.export(model, (torch.zeros(2, 1, 8, 8),), dynamic_shapes=shapes)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it holds the paths of this machine
    torch.export.save(program, path)


def main():
    """Write what is shipped, or all formats into a folder."""
    model = with_weights(sys.argv[1])
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent)
    export(model, folder / "digits_cnn.pt2")
    if len(sys.argv) > 2:
        torch.jit.script(model).save(str(folder / "digits_cnn.pt"))
        torch.save(model.state_dict(), folder / "digits_state.pt")


if __name__ == "__main__":
    main()
