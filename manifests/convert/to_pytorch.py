"""PyTorch: TARGET.pt2 by torch.export, with a free batch size."""

import torch
from network import arguments, report
from torch import nn


def _module(layer):
    if layer.kind == "relu":
        return nn.ReLU()
    if layer.kind == "flatten":
        return nn.Flatten()
    if layer.kind == "maxpool":
        return nn.MaxPool2d(layer.kernel, layer.stride, layer.pad)
    outputs, inputs = layer.weight.shape[:2]
    module = nn.Linear(inputs, outputs)
    if layer.kind == "conv":
        module = nn.Conv2d(inputs, outputs, layer.kernel, layer.stride, layer.pad)
    weight = torch.from_numpy(layer.weight)
    bias = torch.from_numpy(layer.bias)
    module.load_state_dict({"weight": weight, "bias": bias})
    return module


class Model(nn.Module):
    """The layers under their names; the output is under its name too."""

    def __init__(self, network):
        super().__init__()
        self.output = network.output
        self.layers = nn.Sequential()
        for layer in network.layers:
            self.layers.add_module(layer.name, _module(layer))

    def forward(self, image):
        """Take images N x C x H x W; return what the last layer makes, by its name."""
        return {self.output: self.layers(image)}


def main():
    """Write the file."""
    network, target = arguments()
    if network.input != "image":
        raise ValueError("the input is %r; forward() takes 'image'" % network.input)
    path = target + ".pt2"
    model = Model(network).eval()
    image = torch.zeros(2, *network.shape)
    shapes = {"image": {0: torch.export.Dim("batch", min=1, max=65536)}}
    program = torch.export.export(model, (image,), dynamic_shapes=shapes)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it holds the paths of this machine
    torch.export.save(program, path)
    report(graph=path)


if __name__ == "__main__":
    main()
