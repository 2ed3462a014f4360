"""The formats of PyTorch beside the one in the manifest, and what must never run when they are
loaded.
"""

from __future__ import annotations

import pickle
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.agent.process import Refused
from pytest_mlms.structure.onnx_graph import describe_onnx
from tests.support.frameworks import LAYERS, Framework, convert, cost, python_of, reference
from tests.support.project import DIGITS

SIGNATURE = {"inputs": "image float32[?,1,8,8]", "outputs": "logits"}
MODULE = DIGITS / "convert_pytorch.py"


class Evil:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.path), "w")


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = Framework(
        python_of("pytorch", "torch"), "pytorch", tmp_path_factory.mktemp("agent") / "log"
    )
    yield framework
    framework.agent.close()


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert(python_of("pytorch", "torch"), MODULE.name, tmp_path_factory.mktemp("formats"))


def changed(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """Copy a zip file with other contents."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            new.writestr(info, change(info.filename, old.read(info)))
    return target


def test_an_exported_program_has_the_modules_names_for_layers_and_inner_outputs(
    torch: Framework,
) -> None:
    facts = torch.load(DIGITS / "digits_cnn.pt2")
    assert facts["inputs"] == [["image", "float32", [None, 1, 8, 8]]]
    assert facts["outputs"] == [["logits", "float32", [None, 10]]]
    torch.check()
    layers, inner = torch.layers(), torch.inner()
    assert [layer[0] for layer in layers] == list(inner)
    assert len(layers) == LAYERS
    assert layers[0][:2] == ["conv2d_0", "aten.conv2d.default"]
    assert layers[0][4:] == [8 * 16 * 8 * 8 * 4, [8, 16, 8, 8]]
    np.testing.assert_allclose(inner["linear_9"], reference(), rtol=1e-4, atol=1e-5)


def test_torchscript_takes_its_signature_from_the_options(torch: Framework, formats: Path) -> None:
    torch.load(formats / "digits_cnn.pt", **SIGNATURE)
    torch.check()
    layers, inner = torch.layers(), torch.inner()
    assert layers[0][1] == "aten::conv2d"
    assert len(layers) == len(inner) == LAYERS
    np.testing.assert_allclose(list(inner.values())[-1], reference(), rtol=1e-4, atol=1e-5)


def test_a_state_dict_is_put_into_a_module_when_code_is_allowed(
    torch: Framework, formats: Path
) -> None:
    options = {"class": "Digits", **SIGNATURE}
    with pytest.raises(Refused, match="is code; allow it with --mlms-allow-code"):
        torch.load(MODULE, formats / "digits_state.pt", **options)
    torch.load(MODULE, formats / "digits_state.pt", allow_code=True, **options)
    torch.check()
    assert [layer[1] for layer in torch.layers()][:2] == ["Conv2d", "ReLU"]
    assert list(torch.inner())[-1] == "linear_9"


MIXED = """
import torch
from torch import nn
from torch.nn import functional as F

class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Linear(5, 3)
        self.mix = nn.Parameter(torch.zeros(4, 5))

    def forward(self, image):
        x = F.relu_(self.norm(self.conv(image))).flatten(2).transpose(1, 2)
        return self.out(F.scaled_dot_product_attention(x, x, x).mean(1) @ self.mix)

if __name__ == "__main__":
    model = Mixed().eval()
    torch.save(model.state_dict(), "mixed_state.pt")
    torch.jit.trace(model, torch.zeros(2, 1, 8, 8)).save("mixed.pt")
    torch.export.save(torch.export.export(model, (torch.zeros(2, 1, 8, 8),)), "mixed.pt2")
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that computes inside and outside of its modules, in three formats."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "mixed.py").write_text(MIXED)
    subprocess.run([python_of("pytorch", "torch"), "-B", "mixed.py"], cwd=folder, check=True)
    return folder


def test_every_format_of_a_network_costs_the_same(torch: Framework, formats: Path) -> None:
    own = describe_onnx(DIGITS / "digits_cnn.onnx", 4)
    for graph, weights, options in (
        (DIGITS / "digits_cnn.pt2", None, {}),
        (formats / "digits_cnn.pt", None, SIGNATURE),
        (MODULE, formats / "digits_state.pt", {"class": "Digits", **SIGNATURE}),
    ):
        torch.load(graph, weights, allow_code=True, **options)
        found = cost(torch.agent, image=(4, 1, 8, 8))
        assert [layer.shape for layer in found.layers] == [layer.shape for layer in own.layers]
        assert [layer.flops for layer in found.layers] == [layer.flops for layer in own.layers]
        assert [layer.parameters for layer in found.layers] == [
            layer.parameters for layer in own.layers
        ]
        assert found.peak_bytes == own.peak_bytes
        assert "FlopCounterMode" in found.counter


@pytest.mark.parametrize("name", ["mixed.pt2", "mixed.pt", "mixed.py"])
def test_what_a_model_computes_outside_of_its_modules_is_counted(
    torch: Framework, mixed: Path, name: str
) -> None:
    options = {"inputs": "image float32[2,1,8,8]", "outputs": "y"}
    code = name.endswith(".py")
    options.update({"class": "Mixed"} if code else {})
    torch.load(mixed / name, mixed / "mixed_state.pt" if code else None, allow_code=code, **options)
    found = cost(torch.agent, image=(2, 1, 8, 8))
    convolution, attention, product, dense = (
        2 * 2 * 36 * 4 * 9,
        2 * 2 * 2 * 36 * 36 * 4,
        2 * 2 * 4 * 5,
        2 * 2 * 5 * 3,
    )
    first, *attending, last, out = [layer.flops for layer in found.layers if layer.flops]
    assert (first, sum(attending), last, out) == (convolution, attention, product, dense)
    assert found.parameters == 4 * 9 + 4 * 4 + 4 * 5 + (5 * 3 + 3)
    assert found.layers[-1].shape == (2, 3)


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("g++"), reason="torch.compile needs a C++ compiler, and there is no g++"
)
def test_a_compiled_model_agrees(torch: Framework) -> None:
    torch.load(DIGITS / "digits_cnn.pt2", mode="compile")
    torch.check()
    assert all(layer[1].startswith("aten::") for layer in torch.layers())


def test_threads_are_read_back(torch: Framework) -> None:
    assert torch.load(DIGITS / "digits_cnn.pt2", threads=2)["threads"] == 2
    assert torch.load(DIGITS / "digits_cnn.pt2", threads=1)["threads"] == 1


def test_a_pickle_in_a_pt_is_refused_and_does_not_run(
    torch: Framework, formats: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "ran"
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil(trace)))
    with pytest.raises(Refused, match="pickle"):
        torch.load(tmp_path / "evil.pt")
    with pytest.raises(Refused, match="a pickle would run code"):
        torch.load(MODULE, tmp_path / "evil.pt", allow_code=True, **{"class": "Digits"})
    with pytest.raises(Refused, match="holds no graph"):
        torch.load(formats / "digits_state.pt")
    assert not trace.exists()


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
    old, new = (
        b"Symbol('s",
        formula.format(path=str(trace)).replace('"', "'").encode() + b" + Symbol('s",
    )
    evil = changed(
        DIGITS / "digits_cnn.pt2", tmp_path / "evil.pt2", lambda name, data: data.replace(old, new)
    )
    with pytest.raises(Refused, match="would run code"):
        torch.load(evil)
    assert not trace.exists()


def test_an_operator_that_torch_lacks_is_named(
    torch: Framework, formats: Path, tmp_path: Path
) -> None:
    def rename(name: str, data: bytes) -> bytes:
        return data.replace(b"torch.flatten", b"torch.no_such_op") if name.endswith(".py") else data

    with pytest.raises(Refused, match="no_such_op"):
        torch.load(changed(formats / "digits_cnn.pt", tmp_path / "changed.pt", rename))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mood": "eager"}, "no option 'mood'; this predictor knows mode"),
        ({"mode": "fast"}, "mode is 'fast'; write one of eager"),
    ],
)
def test_options_that_it_does_not_know_are_refused(
    torch: Framework, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        torch.load(DIGITS / "digits_cnn.pt2", **options)


def test_a_model_of_another_framework_and_half_a_file_are_refused(
    torch: Framework, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="no model of PyTorch"):
        torch.load(DIGITS / "digits_cnn.onnx")
    half = tmp_path / "half.pt2"
    half.write_bytes((DIGITS / "digits_cnn.pt2").read_bytes()[:60000])
    with pytest.raises(Refused, match="no model of PyTorch"):
        torch.load(half)


def test_a_device_that_is_not_there_is_refused(torch: Framework) -> None:
    if "cuda:0" in torch.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused):
        torch.load(DIGITS / "digits_cnn.pt2", device="cuda:0")
