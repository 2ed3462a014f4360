"""Train the digits network and write its ONNX file, the labels and the held-out images.

    pip install torch==2.13.0 onnx scikit-learn
    python manifests/digits/train.py

The data are the 1,797 images of the UCI "Optical Recognition of Handwritten Digits" test set that
scikit-learn ships (Alpaydin and Kaynak 1998, https://doi.org/10.24432/C50P49, CC BY 4.0): 8 x 8
grey values from 0 to 16. A seeded permutation holds 600 of them out; the network never sees those.

The seed fixes the split to the byte. The weights are the same again on the same CPU and torch
version. Another CPU sums in another order, and 80 epochs make another network of that, as good
within an image or two (98.8 % instead of 99.0 %).
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from torch import nn

SEED = 7
HELD_OUT = 600
EPOCHS = 80
BATCH = 64
HERE = Path(__file__).parent
OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "Conv2d": ("Conv", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "ReLU": ("Relu", {}),
    "MaxPool2d": ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "Flatten": ("Flatten", {"axis": 1}),
    "Linear": ("Gemm", {"transB": 1}),
}
"""ONNX's operator and its attributes for each type of layer."""


class Digits(NamedTuple):
    """Images N x 8 x 8, uint8, and their labels."""

    images: np.ndarray
    labels: np.ndarray


def split() -> tuple[Digits, Digits]:
    """Return the digits to train with, and those that are held out."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    images = digits.images.astype(np.uint8)[order]
    labels = digits.target.astype(np.uint8)[order]
    training = Digits(images[HELD_OUT:], labels[HELD_OUT:])
    held_out = Digits(images[:HELD_OUT], labels[:HELD_OUT])
    return training, held_out


def network() -> nn.Sequential:
    """Return three convolutions and one dense layer, with 26,000 parameters.

    8 x 8 is halved twice, so no pooling rounds.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def scaled(images: np.ndarray) -> torch.Tensor:
    """Return images as the network takes them: N x 1 x 8 x 8, from 0 to 1."""
    return torch.from_numpy(images).float()[:, None] / 16


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Move each image by up to one pixel in both directions: the only augmentation."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    rows, columns = torch.randint(0, 3, (2, len(images)))
    moved = []
    for image, row, column in zip(padded, rows, columns, strict=True):
        moved.append(image[:, row : row + 8, column : column + 8])
    return torch.stack(moved)


def train(digits: Digits) -> nn.Sequential:
    """Fit the network by Adam with a cosine schedule.

    One thread and seeded, so that it can be repeated.
    """
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    images = scaled(digits.images)
    labels = torch.from_numpy(digits.labels).long()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            logits = model(shifted(images[batch]))
            nn.functional.cross_entropy(logits, labels[batch]).backward()
            optimizer.step()
        schedule.step()
    return model.eval()


def to_onnx(model: nn.Sequential) -> onnx.ModelProto:
    """Write the network in opset 9, IR 4, which every framework of the field can read.

    The batch size is free.
    """
    nodes = []
    weights = []
    flow = "image"
    for index, layer in enumerate(model):
        kind = type(layer).__name__
        name = f"{kind.lower()}_{index}"
        inputs = [flow]
        for key, value in layer.named_parameters():
            array = value.detach().numpy()
            weights.append(numpy_helper.from_array(array, f"{name}_{key}"))
            inputs.append(f"{name}_{key}")
        flow = name
        if index == len(model) - 1:
            flow = "logits"
        operator, attributes = OPERATORS[kind]
        nodes.append(helper.make_node(operator, inputs, [flow], name=name, **attributes))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    made = helper.make_model(
        helper.make_graph(nodes, "digits-cnn", [image], [logits], weights),
        opset_imports=[helper.make_opsetid("", 9)],
        ir_version=4,
        producer_name="pytest-mlms",
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def main() -> None:
    """Train, write the files, and print what the manifest must hold."""
    training, held_out = split()
    model = train(training)
    onnx.save(to_onnx(model), HERE / "digits_cnn.onnx")
    np.savez_compressed(HERE / "digits_test.npz", image=held_out.images, label=held_out.labels)
    labels = [f"{digit}\n" for digit in range(10)]
    (HERE / "labels.txt").write_text("".join(labels))
    with torch.no_grad():
        logits = model(scaled(held_out.images))
    is_right = logits.argmax(1).numpy() == held_out.labels
    print(f"top-1 on {HELD_OUT} held-out images: {is_right.mean():.4f}")
    for name in ("digits_cnn.onnx", "digits_test.npz"):
        print(name, hashlib.sha256((HERE / name).read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
