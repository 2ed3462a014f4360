"""PyTorch beside the contract: its other formats, and code that must never run on loading."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors._pytorch_archive import check_pt2
from mlms_predictors._pytorch_script import check_script
from mlms_predictors._run.protocol import KEPT_STATE

from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
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
from tests.support.project import DIGITS, ROOT

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


def test_a_dict_whose_keys_are_not_named_is_refused_with_them(
    torch: Framework, formats: Path
) -> None:
    torch.load(formats / "digits_cnn.pt", inputs=SIGNATURE["inputs"])
    with pytest.raises(Refused, match="a dict of logits; name its keys by the option outputs=log"):
        torch.predict()


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
    convolution_and_norm = 4 * 9 + 4 * 2  # without the norm's statistics
    product_and_dense = 4 * 5 + 5 * 3 + 3
    assert found.parameters == convolution_and_norm + product_and_dense
    assert found.layers[-1].shape == (2, 3)


SHARING = """
import torch

class Sharing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for number in range(BUFFERS):
            self.register_buffer(f"kept{number}", torch.zeros(1, 2))
        self.inner = torch.nn.Identity()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        kept = getattr(self, f"kept{self.calls % BUFFERS}")
        kept.copy_(self.inner(x.add_(1)))
        return kept, x * 2

if __name__ == "__main__":
    torch.save(Sharing().state_dict(), "state.pt")
"""


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_a_model_that_writes_into_its_inputs_and_outputs_changes_no_batch(
    torch: Framework, tmp_path: Path, buffers: int
) -> None:
    (tmp_path / "sharing.py").write_text(f"BUFFERS = {buffers}\n{SHARING}")
    subprocess.run([python_of("pytorch"), "-B", "sharing.py"], cwd=tmp_path, check=True)
    options: dict[str, Any] = {"inputs": "x float32[1,2]", "class": "Sharing"}
    files = (tmp_path / "sharing.py", tmp_path / "state.pt")
    torch.load(*files, allow_code=True, outputs="y; z", **options)
    batches = [("x", np.full((1, 2), number, np.float32)) for number in (0, 5, 6, 7)]
    stop = {"seconds": 0, "least": 8, "longest": 600}
    for _ in range(2):
        fields = {"scenario": "single_stream", "stop": stop}
        reply = torch.agent.request("run", {**fields, "batches": 4}, batches)
        assert reply.arrays["y"].tolist() == [[1, 1]]
        assert reply.arrays["z"].tolist() == [[2, 2]]
        assert torch.agent.request("run", fields).arrays["y"].tolist() == [[1, 1]]
    inner = torch.agent.request("inner", {}, batches[1:2]).arrays
    assert inner["inner"].tolist() == [[6, 6]]
    torch.load(*files, allow_code=True, outputs="y", **options)
    assert list(torch.agent.request("predict", {}, batches[:1]).arrays) == ["y"], "what is named"
    torch.load(*files, allow_code=True, **options)
    with pytest.raises(Refused, match=r"gives 2 outputs, and its signature has 1 \(output\); name"):
        torch.agent.request("predict", {}, batches[:1])


OBSERVING = """
import torch
from mlms_predictors.pytorch import _Habits

for values in (4, 17 << 20):
    habits, calls = _Habits(), 0
    while habits.unseen:
        calls += 1
        habits.observe(lambda given: [torch.zeros(values)], [])
    print(calls)
"""


def test_few_calls_with_large_outputs_are_observed(torch: Framework, tmp_path: Path) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    command = [python_of("pytorch"), "-c", OBSERVING]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["4", "2"]


PROFILED = """
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent
from mlms_predictors._pytorch_layers import layers_of

def event(name, start, took, device=DeviceType.CPU, **more):
    return FunctionEvent(len(events), name, 1, start, start + took, device_type=device,
                         use_device="cuda", **more)

events = EventList(use_device="cuda")
for found in [
    ("mlms", 0, 5000), ("aten::linear", 10, 20), ("aten::addmm", 12, 5), ("aten::view", 40, 2),
    ("triton_poi_fused_relu_0", 50, 9), ("cudaLaunchKernel", 14, 2), ("aten::mm", 60, 5),
]:
    events.append(event(*found))
kernels = [("sgemm", 30, 1000), ("triton_", 1030, 300), ("sgemm", 1330, 40), ("in_a_graph", 1400, 70)]
for found in kernels:
    events.append(event(*found, DeviceType.CUDA))
events.append(event("mlms", 30, 1500, DeviceType.CUDA, is_user_annotation=True))
for launching, kernel in ((2, 0), (4, 1), (6, 2)):
    name, _, took = kernels[kernel]
    events[launching].append_kernel(name, 0, took)
events._build_tree()
ordered = sorted(events, key=lambda event: event.time_range.start)
for layer in layers_of(ordered, 7.0, True):
    print(layer.name, round(1e6 * (layer.start - 7)), round(1e6 * (layer.end - layer.start)))
"""


def test_on_a_gpu_an_operator_takes_as_long_as_its_kernels_and_others_are_layers_too(
    tmp_path: Path,
) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    command = [python_of("pytorch"), "-c", PROFILED]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "linear_0 10 1000",
        "view_1 1010 0",
        "triton_poi_fused_relu_0_2 1010 300",
        "mm_3 1310 40",
        "in_a_graph_4 1400 70",
    ]


HEAD_STARTS = """
import time
from types import SimpleNamespace
from mlms_predictors import Loaded, pytorch

def times(seconds, launches, sleep=0):
    def between_events(loaded, tensors, head_start=0):
        time.sleep(sleep)
        starts.append(head_start)

    starts = []
    before = SimpleNamespace(query=lambda: starts[-1] * pytorch._CYCLE < launches)
    pytorch._between_events = between_events
    pytorch.device_seconds = lambda loaded: seconds
    model = SimpleNamespace(events=[before, None])
    print(*pytorch.event_times(Loaded(model, "cuda:0", 1, [], []), {}), len(starts))

times(3e-5, 1e-3)                 # the second head start is enough
times(3e-5, float("inf"))         # each is tried once
times(3e-3, float("inf"))         # the shortest is nothing beside the call
times(2, 0.05, sleep=0.3)         # one call of each kind takes long enough
"""


def test_head_starts_cost_no_more_calls_than_they_tell(tmp_path: Path) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    command = [python_of("pytorch"), "-c", HEAD_STARTS]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    found = ["3e-05 3e-05 11", "3e-05 None 9", "0.003 None 8", "2 2 2"]
    assert done.stdout.splitlines() == found


PROFILES_OF_GRAPHS = """
import os, sys
import torch
from mlms_predictors import Load, pytorch

for cuda, mode in (("12.6", "max-autotune"), ("11.8", "compile"), ("12.4", "reduce-overhead")):
    torch.version.cuda = cuda
    pytorch.load(Load({"graph": sys.argv[1]}, "cpu", 1, {"mode": mode}))
    print(os.environ.get("TEARDOWN_CUPTI"))
"""


def test_old_versions_of_cuda_stay_profiled_where_a_model_has_graphs(tmp_path: Path) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    command = [python_of("pytorch"), "-c", PROFILES_OF_GRAPHS, str(EXPORTED)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["None", "None", "0"]


RECURRENT = """
import torch

class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]

if __name__ == "__main__":
    model = Recurrent().eval()
    torch.save(model.state_dict(), "state.pt")
"""


def test_states_of_zeros_are_no_parameters(torch: Framework, tmp_path: Path) -> None:
    (tmp_path / "recurrent.py").write_text(RECURRENT)
    subprocess.run([python_of("pytorch"), "-B", "recurrent.py"], cwd=tmp_path, check=True)
    options: dict[str, Any] = {"inputs": "x float32[?,7,3]", "outputs": "y", "class": "Recurrent"}
    torch.load(tmp_path / "recurrent.py", tmp_path / "state.pt", allow_code=True, **options)
    gates = 4 * 5
    assert cost(torch.agent, x=(2, 7, 3)).parameters == gates * 3 + gates * 5 + 2 * gates


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


def test_graphs_of_cuda_are_for_eager_models_on_a_gpu(torch: Framework) -> None:
    for device, mode in (("cpu", "eager"), ("cpu", "compile")):
        with pytest.raises(Refused, match="cuda_graph is for mode eager on a GPU"):
            torch.load(EXPORTED, device=device, mode=mode, cuda_graph=True)


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


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Path]:
    """A file that hostile models would make, which must not be there afterwards."""
    trace = tmp_path / "ran"
    yield trace
    assert not trace.exists()


EFFECTS = [
    ("torch.save(image, 'PATH')", "save"),
    ("ops.aten.save(image, 'PATH')", "save"),
    (r"getattr(torch, 'sa\x76e')(image, 'PATH')", "save"),
    ("torch.from_file('PATH', True, 4)", "from_file"),
    ("ops.prim.rpc_sync('PATH', torch.neg, (image,))", "rpc_sync"),
    ("ops.symm_mem._barrier('PATH')", r"ops\.symm_mem"),
    ("ops.c10d.barrier(image)", r"ops\.c10d"),
    ("ops.torchaudio.sox_io_save_audio_file('PATH', image, 1, True)", r"ops\.torchaudio"),
    ("getattr(ops, 'c10d')", "all operators"),
    ("__torch__.torch . classes . dist_rpc.WorkerInfo", r"torch\.classes\.dist_rpc"),
    ("annotate(__torch__.torch.classes.dist_rpc.WorkerInfo, image)", r"torch\.classes\.dist_rpc"),
    ("getattr(__torch__.torch, 'classes').dist_rpc", "all operators or classes"),
    ("getattr(getattr(__torch__, 'torch'), 'classes').dist_rpc", "all operators or classes"),
]


def with_statement(statement: str, script: Path, target: Path) -> Path:
    """Copy the digits network as TorchScript, with a statement at its beginning."""
    first = b"    conv2d_0 = self.conv2d_0\n"

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("/code/__torch__.py"):
            return data
        assert first in data
        return data.replace(first, f"    {statement}\n".encode() + first)

    return changed(script, target, change)


@pytest.mark.parametrize(("statement", "problem"), EFFECTS)
def test_a_torchscript_that_does_more_than_compute_is_refused_before_torch_reads_it(
    torch: Framework, formats: Path, trace: Path, statement: str, problem: str
) -> None:
    script = formats / "digits_cnn.pt"
    evil = with_statement(statement.replace("PATH", str(trace)), script, trace.with_name("e.pt"))
    with pytest.raises(Refused, match=f"{problem}.*allow it with --mlms-allow-code"):
        torch.load(evil, **SIGNATURE)


def test_code_whose_name_has_capitals_is_checked_as_torch_finds_it(
    torch: Framework, formats: Path, trace: Path
) -> None:
    statement = f"torch.save(image, '{trace}')"
    script = with_statement(statement, formats / "digits_cnn.pt", trace.with_name("saves.pt"))
    evil = trace.with_name("capitals.pt")
    with zipfile.ZipFile(script) as old, zipfile.ZipFile(evil, "w") as new:
        for name in old.namelist():
            new.writestr(re.sub(r"\.py$", ".PY", name), old.read(name))
    with pytest.raises(Refused, match="operator save.*allow it with --mlms-allow-code"):
        torch.load(evil, **SIGNATURE)


def test_a_torchscript_may_write_files_once_its_code_is_allowed(
    torch: Framework, formats: Path, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    statement = f"torch.save(image, '{written}')"
    script = with_statement(statement, formats / "digits_cnn.pt", tmp_path / "saves.pt")
    torch.load(script, allow_code=True, **SIGNATURE)
    torch.predict()
    assert written.stat().st_size


Program = dict[str, Any]
Change = Callable[[Program], None]


def program_of(path: Path) -> Program:
    """Return the JSON of a .pt2."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/models/model.json")]
        program: Program = json.loads(archive.read(names[0]))
    return program


def with_program(change: Change, target: Path) -> Path:
    """Copy the exported digits network with another program."""
    program = program_of(EXPORTED)
    change(program)

    def replace(name: str, data: bytes) -> bytes:
        return json.dumps(program).encode() if name.endswith("/models/model.json") else data

    return changed(EXPORTED, target, replace)


def with_formula(formula: str, target: Path) -> Path:
    """Copy the exported digits network with a formula before each symbol."""
    old = b"Symbol('s"
    new = formula.replace('"', "'").encode() + b" + " + old
    return changed(EXPORTED, target, lambda name, data: data.replace(old, new))


@pytest.mark.parametrize(
    "formula",
    [
        "open({path!r}, 'w')",
        "Max('open({path!r}, chr(119))', 1)",
        "().__class__.__base__.__subclasses__()",
        "S('open')",
    ],
)
def test_a_formula_in_a_pt2_that_would_run_code_is_refused(
    torch: Framework, tmp_path: Path, trace: Path, formula: str
) -> None:
    path = with_formula(formula.format(path=str(trace)), tmp_path / "evil.pt2")
    with pytest.raises(Refused, match="would run code"):
        torch.load(path)


@pytest.mark.parametrize(
    "formula",
    [
        "2**2**2**2**2**2",
        "Pow(Integer(2), Pow(Integer(2), Integer(99)))",
        "((((9**99)**99)**99)**99)**99",
        "LShift(Integer(1), Integer(10**12))",
        "1 << 9999999999",
        "Float('1', precision=9999999999)",
        "'word' * 9999999999",
        "(" * 9000 + "1" + ")" * 9000,
    ],
)
def test_a_formula_that_would_be_computed_for_ever_is_refused_at_once(
    torch: Framework, tmp_path: Path, formula: str
) -> None:
    path = with_formula(formula, tmp_path / "evil.pt2")
    with pytest.raises(Refused, match="or compute for long"):
        torch.load(path)


def with_two_programs(target: Path, folder: str, evil: bytes, is_last: bool) -> Path:
    """Copy the exported digits network with a second program in this folder.

    torch ignores the case of names: it runs the last of models/model.json and Models/model.json.
    """
    with zipfile.ZipFile(EXPORTED) as old, zipfile.ZipFile(target, "w") as new:
        members = {name: old.read(name) for name in old.namelist()}
        name = next(name for name in members if name.endswith("/models/model.json"))
        good = members.pop(name)
        for other, data in members.items():
            new.writestr(other, data)
        pair = [(name.replace("models", folder), evil), (name, good)]
        for other, data in reversed(pair) if is_last else pair:
            new.writestr(other, data)
    return target


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("folder", ["models", "Models"])
def test_a_pt2_with_two_programs_is_refused(
    torch: Framework, tmp_path: Path, trace: Path, folder: str, is_last: bool
) -> None:
    evil = with_formula(f"open('{trace}', 'w')", tmp_path / "one.pt2")
    program = json.dumps(program_of(evil)).encode()
    path = with_two_programs(tmp_path / "two.pt2", folder, program, is_last)
    with pytest.raises(Refused, match=r"it has the members '.*/.odels/model\.json' and "):
        torch.load(path)


def as_call_of_a_function(program: Program, trace: Path) -> None:
    node = program["graph_module"]["graph"]["nodes"][1]
    node["target"] = "torch.os.system"
    node["inputs"] = [{"name": "", "arg": {"as_string": f"touch {trace}"}, "kind": 1}]


def as_library(program: Program, trace: Path) -> None:
    node = program["graph_module"]["graph"]["nodes"][1]
    node["target"] = "torch.ops.load_library"


def as_method_of_the_operators(program: Program, trace: Path) -> None:
    program["graph_module"]["graph"]["nodes"][1]["target"] = "torch.ops.aten.add.__class__"


def as_method_of_a_table(program: Program, trace: Path) -> None:
    program["graph_module"]["graph"]["nodes"][1]["target"] = "torch.ops.aten.__dict__.clear"


def as_reader_of_a_file(program: Program, trace: Path) -> None:
    program["graph_module"]["graph"]["nodes"][1]["target"] = "torch.ops.aten.from_file.default"


def as_function_that_is_handed_on(program: Program, trace: Path) -> None:
    node = program["graph_module"]["graph"]["nodes"][1]
    argument = {"name": "", "arg": {"as_operator": "torch.os.system"}, "kind": 1}
    node["target"] = "torch.ops.higher_order.cond"
    node["inputs"] = [argument]


def as_name(program: Program, trace: Path) -> None:
    text = json.dumps(program["graph_module"])
    name = f"image=open({str(trace)!r}, 'w')"
    program["graph_module"] = json.loads(text.replace('"name": "image"', f'"name": "{name}"'))


def as_parts_of_a_formula(program: Program, trace: Path) -> None:
    text = json.dumps(program).replace('"expr_str": "', '"expr_str": {"a": "open(1)"}, "x": "')
    program.clear()
    program.update(json.loads(text))


def as_keys_in_place_of_formulas(program: Program, trace: Path) -> None:
    program["guards_code"] = {"open(1)": 1}


def as_keys_in_place_of_names(program: Program, trace: Path) -> None:
    call = program["graph_module"]["module_call_graph"][0]["signature"]
    call["forward_arg_names"] = {f"image=open({str(trace)!r}, 'w')": 1}


def as_class_of_a_signature(program: Program, trace: Path) -> None:
    call = program["graph_module"]["module_call_graph"][0]["signature"]
    call["in_spec"] = '[1, {"type": null, "context": "{\\"__enum__\\": true}"}]'


def as_count(program: Program, trace: Path) -> None:
    program["range_constraints"]["u99999999999"] = {"min_val": 0, "max_val": 9}


def under_metadata(program: Program, trace: Path) -> None:
    node = program["graph_module"]["graph"]["nodes"][1]
    node["metadata"] = {"as_expr": {"expr_str": "open(1)"}}


def load_and_run(torch: Framework, path: Path) -> None:
    torch.load(path)
    torch.predict()


@pytest.mark.parametrize(
    "hide",
    [
        as_call_of_a_function,
        as_library,
        as_method_of_the_operators,
        as_method_of_a_table,
        as_reader_of_a_file,
        as_function_that_is_handed_on,
        as_name,
        as_parts_of_a_formula,
        as_keys_in_place_of_formulas,
        as_keys_in_place_of_names,
        as_class_of_a_signature,
        as_count,
        under_metadata,
    ],
)
def test_code_in_the_program_of_a_pt2_is_refused(
    torch: Framework, tmp_path: Path, trace: Path, hide: Callable[[Program, Path], None]
) -> None:
    path = with_program(lambda program: hide(program, trace), tmp_path / "evil.pt2")
    with pytest.raises(Refused, match="allow it with --mlms-allow-code"):
        load_and_run(torch, path)


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("digits_cnn/data/aotinductor/model/model.so", "may be code that would run"),
        ("digits_cnn/data/constants/opaque_obj_0", "may be code that would run"),
        ("digits_cnn/data/constants/custom_obj_0", "may be code that would run"),
        ("digits_cnn/models/other.json", "may be code that would run"),
        ("version", "it has the folders digits_cnn, version"),
    ],
)
def test_a_pt2_with_more_than_a_program_and_weights_is_refused(
    torch: Framework, tmp_path: Path, member: str, message: str
) -> None:
    path = tmp_path / "more.pt2"
    shutil.copy(EXPORTED, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, b"x")
    with pytest.raises(Refused, match=message):
        torch.load(path)


def test_a_pt2_with_a_compressed_member_is_refused(torch: Framework, tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    shutil.copy(EXPORTED, path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("digits_cnn/extra/zeros", bytes(10 << 20))
    with pytest.raises(Refused, match="zeros is compressed, which torch doesn't do"):
        torch.load(path)


EXPORTS = """
import torch
from torch import nn
from torch.export import Dim, export, save
from torch.nn import functional as F

class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, ids):
        x = self.encoder(self.lstm(self.embedding(ids))[0]) * self.scale
        return {"a-b": torch.einsum("bij,bkj->bik", x, x), "sum": x.sum()}

class Branch(nn.Module):
    def forward(self, x, *, scale):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.transpose(-1, -2)
        count = x.sum().to(torch.int64).item()
        torch._check(count > 0)
        torch._check(count < 100)
        z = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        return y * scale["k"], torch.zeros(count), F.pad(z, (1, 1), mode="reflect")

class Pairs(nn.Module):
    def forward(self, x):
        y = x.reshape(x.shape[0] // 2, 2, -1)
        return F.interpolate(y[None], scale_factor=2.0, mode="nearest"), y.shape[0] * 3

ids = torch.zeros(2, 5, dtype=torch.long)
save(export(Text(), (ids,), dynamic_shapes={"ids": {0: Dim("n", max=64)}}), "text.pt2")
branch = export(Branch(), (torch.ones(1, 3, 4),), {"scale": {"k": torch.ones(1)}})
save(branch, "branch.pt2", extra_files={"note.txt": "hello"})
pairs = {"x": {0: 2 * Dim("pairs", max=64)}}
save(export(Pairs(), (torch.ones(4, 4),), dynamic_shapes=pairs), "pairs.pt2")
"""


def test_what_torch_exports_itself_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "exports.py").write_text(EXPORTS)
    subprocess.run([python_of("pytorch"), "-B", "exports.py"], cwd=tmp_path, check=True)
    for name in ("text.pt2", "branch.pt2", "pairs.pt2"):
        check_pt2(str(tmp_path / name))


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
    with pytest.raises(Refused, match="it is a damaged zip file"):
        torch.load(half)


def without_nodes(program: Program) -> None:
    program["graph_module"]["graph"]["nodes"] = []


def of_a_later_schema(program: Program) -> None:
    program["schema_version"]["major"] = 99


@pytest.mark.parametrize("damage", [dict.clear, without_nodes, of_a_later_schema])
def test_a_program_that_torch_can_not_read_is_told_in_words(
    torch: Framework, tmp_path: Path, damage: Change
) -> None:
    path = with_program(damage, tmp_path / "damaged.pt2")
    with pytest.raises(Refused, match=r"torch [\d.]+\S* can't read it; export it again with this"):
        torch.load(path)


NO_DAMAGES = """
import sys
sys.path.insert(0, sys.argv[1])
import worker  # makes mlms_predictors importable
import torch
from mlms_predictors._pytorch_files import _told_damages

def full():
    torch.empty(1 << 60)

def missing():
    import no_such_module

def damaged():
    raise KeyError("nodes")

for fails in (full, missing, damaged):
    try:
        with _told_damages():
            fails()
    except Exception as error:
        print(type(error).__name__, "can't read it" in str(error))
"""


@pytest.mark.slow
def test_full_memory_and_a_missing_module_are_no_damage_of_the_file() -> None:
    command = [python_of("pytorch"), "-B", "-c", NO_DAMAGES, str(ROOT / "predictors" / "_run")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    assert told[:3] == ["RuntimeError False", "ModuleNotFoundError False", "RuntimeError True"]


HONEST = """
import torch

class Honest(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 4)
        self.classes = ["a", "b"]

    def forward(self, x):
        found = self.classes
        return self.lstm(x)[0] * len(found)

model = Honest().eval()
torch.jit.script(model).save("classes.pt")
quantized = torch.ao.quantization.quantize_dynamic(model, {torch.nn.LSTM}, dtype=torch.qint8)
torch.jit.script(quantized).save("quantized.pt")
"""


@pytest.mark.slow
def test_a_list_of_classes_and_packed_weights_of_an_lstm_need_no_consent(tmp_path: Path) -> None:
    (tmp_path / "honest.py").write_text(HONEST)  # torch reads the source
    command = [python_of("pytorch"), "-B", "-W", "ignore", "honest.py"]
    subprocess.run(command, cwd=tmp_path, check=True)
    for name in ("classes.pt", "quantized.pt"):
        check_script(str(tmp_path / name))


CODE = """
class M(Module):
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    training = self.training
    if training:
      num_batches_tracked = self.num_batches_tracked
      _2 = torch.add_(num_batches_tracked, 1)
    else:
      bias = self.bias
      y = torch.add(x, bias)
    _5 = torch.add_(y, 1)
    {statement}
    return torch.__and__(y, h)
  def __setstate__(self: __torch__.M, state: Tensor) -> NoneType:
    self.packed = state
"""


@pytest.mark.parametrize(
    ("statement", "states"),
    [
        ("self.h = torch.add(x, 1)", ["h"]),
        ("self.n = torch.add(n, 1); self.h = x", ["h", "n"]),
        ("h = self.h; _1 = torch.add_(h, 1)", ["h"]),
        ("h = self.h; _1 = torch.copy_(torch.slice(torch.slice(h), 1, 1), x)", ["h"]),
        ("if training:\n      pass\n    else:\n      self.h = x", ["h"]),
        ("h = self.h; _1 = torch.copy_(x, h)", []),
        ("h = self.h; _1 = torch.add(h, 1)", []),
        ("h = torch.clone(self.h); _1 = torch.add_(h, 1)", []),
    ],
)
def test_a_state_is_what_the_code_of_a_torchscript_changes_of_its_module(
    tmp_path: Path, statement: str, states: list[str]
) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/code/__torch__.py", CODE.replace("{statement}", statement))
    assert check_script(str(path)) == states


STATE = """
import torch

class State(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("sum", torch.zeros(3))

    def forward(self, x):
        self.sum = self.sum + self.norm(x)[0]
        return x + self.sum

torch.jit.script(State()).save("state.jit")
torch.jit.trace(State().eval(), torch.ones(2, 3)).save("none.ts")  # traces have no assignments
torch.jit.script(torch.nn.BatchNorm1d(3)).save("norm.pt")

class Adding(State):
    def forward(self, x):
        self.sum.add_(self.norm(x)[0])
        return x + self.sum

torch.jit.trace(Adding().eval(), torch.ones(2, 3)).save("traced.ts")
torch.export.save(torch.export.export(Adding().eval(), (torch.ones(2, 3),)), "state.pt2")
"""


@pytest.mark.slow
def test_a_model_that_keeps_a_state_says_so(torch: Framework, tmp_path: Path) -> None:
    (tmp_path / "state.py").write_text(STATE)  # torch reads the source
    command = [python_of("pytorch"), "-B", "-W", "ignore", "state.py"]
    subprocess.run(command, cwd=tmp_path, check=True)
    for name, facts in (
        ("state.jit", {KEPT_STATE: "sum"}),
        ("traced.ts", {KEPT_STATE: "sum"}),
        ("none.ts", None),
        ("norm.pt", None),
    ):
        assert torch.load(tmp_path / name, inputs="x float32[?,3]")["device_facts"] == facts
    assert torch.load(tmp_path / "state.pt2")["device_facts"] == {KEPT_STATE: "sum"}


def test_a_program_that_is_nested_deeply_is_damaged(tmp_path: Path) -> None:
    for depth in (5_000, 100_000):
        program = b"[" * depth + b"]" * depth

        def replace(name: str, data: bytes, program: bytes = program) -> bytes:
            return program if name.endswith("/models/model.json") else data

        path = changed(EXPORTED, tmp_path / f"{depth}.pt2", replace)
        with pytest.raises(RuntimeError, match="is damaged: it is nested too deeply"):
            check_pt2(str(path))


def test_a_device_that_is_not_there_is_refused(torch: Framework) -> None:
    if "cuda:0" in torch.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused):
        torch.load(EXPORTED, device="cuda:0")
