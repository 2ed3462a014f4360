"""PyTorch beside the contract: its other formats, and code that must never run on loading."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.agent.process import Refused
from pytest_mlms.structure.onnx_graph import describe_onnx
from tests.support.frameworks import (
    FIRST_BYTES,
    FIRST_SHAPE,
    INPUT,
    LAYERS,
    OUTPUT,
    Framework,
    assert_close,
    convert,
    cost,
    python_of,
    reference,
    signature,
)
from tests.support.project import DIGITS

EXPORTED = DIGITS / "digits_cnn.pt2"
MODULE = DIGITS / "convert_pytorch.py"
SIGNATURE: dict[str, Any] = {"inputs": "image float32[?,1,8,8]", "outputs": "logits"}
DIGITS_CLASS: dict[str, Any] = {"class": "Digits", **SIGNATURE}


class Evil:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.path), "w")


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    log = tmp_path_factory.mktemp("agent") / "log"
    framework = Framework(python_of("pytorch"), "pytorch", log)
    yield framework
    framework.agent.close()


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits network in all formats."""
    return convert(python_of("pytorch"), MODULE.name, tmp_path_factory.mktemp("formats"))


def changed(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """Copy a zip file with other contents."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            new.writestr(info, change(info.filename, old.read(info)))
    return target


def test_an_exported_programs_layers_and_inner_outputs_have_its_modules_names(
    torch: Framework,
) -> None:
    facts = torch.load(EXPORTED)
    assert signature(facts) == ([INPUT], [OUTPUT])
    torch.check()
    layers = torch.layers()
    inner = torch.inner()
    assert [layer.name for layer in layers] == list(inner)
    assert len(layers) == LAYERS
    first = layers[0]
    assert (first.name, first.type) == ("conv2d_0", "aten.conv2d.default")
    assert (first.bytes, first.shape) == (FIRST_BYTES, FIRST_SHAPE)
    assert_close(inner["linear_9"], reference())


def test_torchscript_takes_its_signature_from_the_options(torch: Framework, formats: Path) -> None:
    torch.load(formats / "digits_cnn.pt", **SIGNATURE)
    torch.check()
    layers = torch.layers()
    inner = torch.inner()
    assert layers[0].type == "aten::conv2d"
    assert len(layers) == len(inner) == LAYERS
    assert_close(list(inner.values())[-1], reference())


def test_a_state_dict_is_put_into_a_module_when_code_is_allowed(
    torch: Framework, formats: Path
) -> None:
    torch.load(MODULE, formats / "digits_state.pt", allow_code=True, **DIGITS_CLASS)
    torch.check()
    assert [layer.type for layer in torch.layers()][:2] == ["Conv2d", "ReLU"]
    assert list(torch.inner())[-1] == "linear_9"


def test_a_module_is_refused_when_code_is_not_allowed(torch: Framework, formats: Path) -> None:
    with pytest.raises(Refused, match="is code; allow it with --mlms-allow-code"):
        torch.load(MODULE, formats / "digits_state.pt", **DIGITS_CLASS)


MIXED = """
import torch
from torch import nn
from torch.nn import functional as F

class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(5, 3)
        self.mix = nn.Parameter(torch.zeros(4, 5))

    def forward(self, image):
        x = F.relu_(self.norm(self.conv(image))).flatten(2).transpose(1, 2)
        return self.out(F.scaled_dot_product_attention(x, x, x).mean(1) @ self.mix)

if __name__ == "__main__":
    model = Mixed().eval()
    image = torch.zeros(2, 1, 8, 8)
    torch.save(model.state_dict(), "mixed_state.pt")
    torch.jit.trace(model, image).save("mixed.pt")
    torch.export.save(torch.export.export(model, (image,)), "mixed.pt2")
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that computes inside and outside of its modules, in three formats."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "mixed.py").write_text(MIXED)
    subprocess.run([python_of("pytorch"), "-B", "mixed.py"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("name", ["digits_cnn.pt2", "digits_cnn.pt", "module"])
def test_every_format_of_a_network_costs_the_same(
    torch: Framework, formats: Path, name: str
) -> None:
    if name == "module":
        torch.load(MODULE, formats / "digits_state.pt", allow_code=True, **DIGITS_CLASS)
    elif name == "digits_cnn.pt":
        torch.load(formats / name, **SIGNATURE)
    else:
        torch.load(formats / name)
    found = cost(torch.agent, image=(4, 1, 8, 8))
    own = describe_onnx(DIGITS / "digits_cnn.onnx", 4)
    for layer, expected in zip(found.layers, own.layers, strict=True):
        assert layer.shape == expected.shape
        assert layer.flops == expected.flops
        assert layer.parameters == expected.parameters
    assert found.peak_bytes == own.peak_bytes
    assert "FlopCounterMode" in found.counter


@pytest.mark.parametrize("name", ["mixed.pt2", "mixed.pt", "mixed.py"])
def test_operations_outside_of_a_models_modules_are_counted(
    torch: Framework, mixed: Path, name: str
) -> None:
    options: dict[str, Any] = {"inputs": "image float32[2,1,8,8]", "outputs": "y"}
    if name == "mixed.py":
        options["class"] = "Mixed"
        torch.load(mixed / name, mixed / "mixed_state.pt", allow_code=True, **options)
    else:
        torch.load(mixed / name, **options)
    found = cost(torch.agent, image=(2, 1, 8, 8))
    convolution = 2 * 2 * 36 * 4 * 9
    attention = 2 * 2 * 2 * 36 * 36 * 4
    product = 2 * 2 * 4 * 5
    dense = 2 * 2 * 5 * 3
    first, *attending, last, out = [layer.flops for layer in found.layers if layer.flops]
    assert first == convolution
    assert sum(attending) == attention
    assert last == product
    assert out == dense
    convolution_and_norm = 4 * 9 + 4 * 4
    product_and_dense = 4 * 5 + 5 * 3 + 3
    assert found.parameters == convolution_and_norm + product_and_dense
    assert found.layers[-1].shape == (2, 3)


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("g++"), reason="torch.compile needs a C++ compiler, and there is no g++"
)
def test_a_compiled_model_agrees(torch: Framework) -> None:
    torch.load(EXPORTED, mode="compile")
    torch.check()
    assert all(layer.type.startswith("aten::") for layer in torch.layers())


def test_torchscript_can_not_be_compiled(torch: Framework, formats: Path) -> None:
    with pytest.raises(Refused, match=r"torch\.compile takes no TorchScript; write mode: eager"):
        torch.load(formats / "digits_cnn.pt", mode="compile", **SIGNATURE)


def test_threads_change_with_each_load(torch: Framework) -> None:
    for threads in (2, 1):
        assert torch.load(EXPORTED, threads=threads)["threads"] == threads


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[Path]:
    """A pickle that would make a file, which must not be there afterwards."""
    trace = tmp_path / "ran"
    path = tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps(Evil(trace)))
    yield path
    assert not trace.exists()


def test_a_pickle_as_a_graph_is_refused_and_does_not_run(torch: Framework, evil: Path) -> None:
    with pytest.raises(Refused, match="pickle"):
        torch.load(evil)


def test_a_pickle_as_weights_is_refused_and_does_not_run(torch: Framework, evil: Path) -> None:
    with pytest.raises(Refused, match="a pickle would run code"):
        torch.load(MODULE, evil, allow_code=True, **DIGITS_CLASS)


def test_a_state_dict_as_a_graph_is_refused(torch: Framework, formats: Path) -> None:
    with pytest.raises(Refused, match="holds no graph"):
        torch.load(formats / "digits_state.pt")


@pytest.mark.parametrize(
    "formula",
    [
        "open({path!r}, 'w')",
        "Max('open({path!r}, chr(119))', 1)",
        "().__class__.__base__.__subclasses__()",
    ],
)
def test_a_formula_in_a_pt2_that_would_run_code_is_refused(
    torch: Framework, tmp_path: Path, formula: str
) -> None:
    trace = tmp_path / "ran"
    code = formula.format(path=str(trace)).replace('"', "'")
    old = b"Symbol('s"
    new = code.encode() + b" + " + old

    def insert(name: str, data: bytes) -> bytes:
        return data.replace(old, new)

    path = changed(EXPORTED, tmp_path / "evil.pt2", insert)
    with pytest.raises(Refused, match="would run code"):
        torch.load(path)
    assert not trace.exists()


def test_an_operator_that_torch_lacks_is_named(
    torch: Framework, formats: Path, tmp_path: Path
) -> None:
    def rename(name: str, data: bytes) -> bytes:
        if not name.endswith(".py"):
            return data
        return data.replace(b"torch.flatten", b"torch.no_such_op")

    graph = changed(formats / "digits_cnn.pt", tmp_path / "changed.pt", rename)
    with pytest.raises(Refused, match="no_such_op"):
        torch.load(graph)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mood": "eager"}, "no option 'mood'; this predictor knows mode"),
        ({"mode": "fast"}, "mode is 'fast'; write one of eager"),
    ],
)
def test_options_that_it_does_not_know_are_refused(
    torch: Framework, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        torch.load(EXPORTED, **options)


def test_a_model_of_another_framework_is_refused(torch: Framework) -> None:
    with pytest.raises(Refused, match="no model of PyTorch"):
        torch.load(DIGITS / "digits_cnn.onnx")


def test_half_a_file_is_refused(torch: Framework, tmp_path: Path) -> None:
    half = tmp_path / "half.pt2"
    half.write_bytes(EXPORTED.read_bytes()[:60000])
    with pytest.raises(Refused, match="no model of PyTorch"):
        torch.load(half)


def test_a_device_that_is_not_there_is_refused(torch: Framework) -> None:
    if "cuda:0" in torch.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused):
        torch.load(EXPORTED, device="cuda:0")
