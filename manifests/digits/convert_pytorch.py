"""Write the digits network for PyTorch: digits_cnn.pt2, and the other formats on demand.

    pip install torch==2.13.0 numpy
    python manifests/digits/convert_pytorch.py weights.npz [FOLDER]

With a FOLDER it writes there: digits_cnn.pt2 (torch.export), digits_cnn.pt (TorchScript), and
digits_state.pt (a state dict for ``Digits`` in this file). weights.npz is by weights.py.
"""

import sys
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
        x = self.conv2d_0(image)
        x = self.relu_1(x)
        x = self.conv2d_2(x)
        x = self.relu_3(x)
        x = self.maxpool2d_4(x)
        x = self.conv2d_5(x)
        x = self.relu_6(x)
        x = self.maxpool2d_7(x)
        x = self.flatten_8(x)
        return {"logits": self.linear_9(x)}


def with_weights(path):
    """Return the network with the weights of an .npz file.

    The names there have an underscore where a state dict has the last dot.
    """
    arrays = np.load(path)
    state = {}
    for name in arrays.files:
        layer, _, part = name.rpartition("_")
        state[f"{layer}.{part}"] = torch.from_numpy(arrays[name])
    model = Digits().eval()
    model.load_state_dict(state)
    return model


def export(model, path):
    """Write the network with a free batch size."""
    image = torch.zeros(2, 1, 8, 8)
    shapes = {"image": {0: torch.export.Dim("batch", min=1, max=65536)}}
    program = torch.export.export(model, (image,), dynamic_shapes=shapes)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it holds the paths of this machine
    torch.export.save(program, path)


def main():
    """Write what is shipped, or all formats into a folder."""
    model = with_weights(sys.argv[1])
    if len(sys.argv) == 2:
        export(model, Path(__file__).parent / "digits_cnn.pt2")
        return
    folder = Path(sys.argv[2])
    export(model, folder / "digits_cnn.pt2")
    torch.jit.script(model).save(str(folder / "digits_cnn.pt"))
    torch.save(model.state_dict(), folder / "digits_state.pt")


if __name__ == "__main__":
    main()
