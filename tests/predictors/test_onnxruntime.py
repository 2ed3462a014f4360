"""ONNX Runtime beside the contract: its layers and inner outputs, and its options."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort_package
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Load, onnxruntime
from mlms_predictors._onnxruntime_graph import with_all_outputs
from mlms_predictors._run.options import layer_variables_of
from onnx.reference import ReferenceEvaluator

from pytest_mlms.measure.agent.process import Refused
from tests.support.driver import compile_library
from tests.support.frameworks import (
    FIRST_BYTES,
    FIRST_SHAPE,
    IMAGES,
    LAYERS,
    Framework,
    assert_close,
    check_profiles,
    python_of,
    reference,
)
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn.onnx"


@pytest.fixture(scope="module")
def ort(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    log = tmp_path_factory.mktemp("agent") / "log"
    framework = Framework(python_of("onnxruntime"), "onnxruntime", log)
    yield framework
    framework.agent.close()


def test_layers_are_the_nodes_of_the_file_without_optimisation(ort: Framework) -> None:
    ort.load(GRAPH, optimization="none")
    layers = ort.layers()
    assert len(layers) == LAYERS
    for layer, node in zip(layers, onnx.load(GRAPH).graph.node, strict=True):
        assert (layer.name, layer.type) == (node.name, node.op_type)
    assert (layers[0].bytes, layers[0].shape) == (FIRST_BYTES, FIRST_SHAPE)


def zipmap_model(folder: Path) -> Path:
    """Write a model as scikit-learn's are converted: labels, and a map for each row."""
    nodes = [
        onnx.helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0),
        onnx.helper.make_node(
            "ZipMap", ["x"], ["probability"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
        ),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 2])],
        [
            onnx.helper.make_value_info("probability", onnx.TypeProto()),
            onnx.helper.make_tensor_value_info("label", onnx.TensorProto.INT64, [None]),
        ],
    )
    sequence = graph.output[0].type.sequence_type.elem_type.map_type
    sequence.key_type = onnx.TensorProto.INT64
    sequence.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    opsets = [onnx.helper.make_opsetid("", 13), onnx.helper.make_opsetid("ai.onnx.ml", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path = folder / "zipmap.onnx"
    onnx.save(model, path)
    return path


def test_outputs_that_are_no_arrays_are_left_out(ort: Framework, tmp_path: Path) -> None:
    ort.load(zipmap_model(tmp_path))
    arrays = {"x": np.array([[0.1, 0.9], [0.8, 0.2]], np.float32)}
    found = ort.agent.request("predict", arrays=list(arrays.items())).arrays
    assert {name: array.tolist() for name, array in found.items()} == {"label": [1, 0]}


def text_model(folder: Path) -> Path:
    """Write a model that gives its texts back, and how many there are."""
    texts = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, [None])
    same = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.STRING, [None])
    count = onnx.helper.make_tensor_value_info("count", onnx.TensorProto.INT64, [])
    nodes = [
        onnx.helper.make_node("Identity", ["x"], ["y"]),
        onnx.helper.make_node("Size", ["x"], ["count"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [texts], [same, count])
    opsets = [onnx.helper.make_opsetid("", 13)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path = folder / "texts.onnx"
    onnx.save(model, path)
    return path


def test_texts_are_taken_and_given_behind_numbers(ort: Framework, tmp_path: Path) -> None:
    ort.load(text_model(tmp_path))
    texts = np.array(["", "größe", "\N{GRINNING FACE}"])
    found = ort.agent.request("predict", arrays=[("x", texts)]).arrays
    assert [(name, array.tolist()) for name, array in found.items()] == [
        ("count", 3),
        ("y", texts.tolist()),
    ]


def test_layers_are_the_nodes_that_optimisation_leaves(ort: Framework) -> None:
    ort.load(GRAPH)
    layers = ort.layers()
    assert len(layers) < LAYERS
    assert {"FusedConv", "Conv"} & {layer.type for layer in layers}


def test_inner_outputs_are_those_of_onnxs_own_evaluator(ort: Framework) -> None:
    ort.load(GRAPH)
    inner = ort.inner()
    model = onnx.load(GRAPH)
    names: list[str] = []
    for node in model.graph.node:
        names += node.output
    assert list(inner) == names
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    expected: Any = ReferenceEvaluator(model).run(None, {"image": IMAGES})
    for name, output in zip(names, expected, strict=True):
        assert_close(inner[name], output)


def test_every_level_of_optimization_gives_the_same(ort: Framework) -> None:
    for level in ("all", "extended", "basic", "none"):
        ort.load(GRAPH, optimization=level)
        assert_close(ort.predict(), reference())


def test_threads_are_read_back(ort: Framework) -> None:
    assert ort.load(GRAPH, threads=2)["threads"] == 2
    assert ort.load(GRAPH, threads=None)["threads"] is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"provider": "cuda"}, "provider is 'cuda' on cpu"),
        ({"provider": "gpu"}, "provider is 'gpu'; write one of cpu, cuda"),
        ({"optimization": "more"}, "optimization is 'more'; write one of all"),
        ({"mode": "fast"}, "no option 'mode'; this predictor knows provider"),
        ({"inter_op_threads": "2"}, "inter_op_threads is '2'; write a whole number"),
        ({"config.ep.plugin_path": "a.so"}, "option config.ep.plugin_path runs code; allow it"),
    ],
)
def test_options_that_can_not_be_obeyed_are_refused(
    ort: Framework, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        ort.load(GRAPH, **options)


def test_session_options_reach_the_session(ort: Framework) -> None:
    ort.load(GRAPH, execution_mode="parallel", inter_op_threads=2, mem_pattern=False)
    assert len(ort.predict()) == len(IMAGES)
    dotted: list[dict[str, Any]] = [
        {"free_dimension.N": 8},
        {"config.session.intra_op.allow_spinning": False},
    ]
    for options in dotted:
        assert ort.load(GRAPH, **options)["device"] == "cpu"


def test_a_provider_that_is_not_in_the_build_is_refused(ort: Framework) -> None:
    if "cuda:0" in ort.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused, match="has no TensorrtExecutionProvider|would use"):
        ort.load(GRAPH, device="cuda:0", provider="tensorrt")


def test_an_operator_that_it_lacks_is_named(ort: Framework, tmp_path: Path) -> None:
    model = onnx.load(GRAPH)
    model.graph.node[1].op_type = "NoSuchOp"
    onnx.save(model, tmp_path / "unknown.onnx")
    with pytest.raises(Refused, match="NoSuchOp"):
        ort.load(tmp_path / "unknown.onnx")


@given(
    st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=20, unique=True),
    st.integers(0, 19),
)
def test_a_graph_gains_outputs_and_keeps_the_rest(names: list[str], number: int) -> None:
    kept = names[number % len(names)]
    model = model_of(names, kept)
    changed, found = with_all_outputs(model.SerializeToString())
    again = onnx.ModelProto.FromString(changed)
    assert found == names
    assert sorted(value.name for value in again.graph.output) == sorted(names)
    del again.graph.output[1:]
    assert again == model


def model_of(names: list[str], output: str) -> onnx.ModelProto:
    """Return a model whose nodes give these names, of which one is its output."""
    nodes = [onnx.helper.make_node("Relu", ["x"], [name, ""]) for name in names]
    outputs = [onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [1])]
    weights = [onnx.helper.make_tensor("w", onnx.TensorProto.DOUBLE, [3], [1.0, 2.0, 3.0])]
    graph = onnx.helper.make_graph(nodes, "g", [], outputs, weights)
    return onnx.helper.make_model(graph, ir_version=4)


def test_several_profiles_are_of_one_session() -> None:
    loaded = onnxruntime.load(Load({"graph": str(GRAPH)}, "cpu", 1, {}))
    model = loaded.model
    opened = []

    def open_session(*arguments: Any) -> Any:
        opened.append(model.open(*arguments))
        return opened[-1]

    counted = loaded._replace(model=model._replace(open=open_session))
    profiles = onnxruntime.profiles(counted, {"image": IMAGES}, 4)
    assert len(opened) == 1
    assert len(profiles) == 4
    check_profiles(profiles)
    names = [layer.name for layer in profiles[0].layers]
    for profile in profiles:
        assert [layer.name for layer in profile.layers] == names


def event(category: str, name: str, began: int, took: int, **facts: str) -> dict[str, Any]:
    """Return an event as ONNX Runtime writes it, in microseconds; a kernel's ``began`` is a GPU's."""
    known = {
        "op_name": name.split("_", maxsplit=1)[0],
        "provider": "CUDAExecutionProvider",
        **facts,
    }
    return {"cat": category, "name": name, "ts": began, "dur": took, "ph": "X", "args": known}


GPU_EVENTS = [
    event("Session", "model_run", 0, 10),
    event("Session", "model_run", 1_000, 400),
    event("Kernel", "MemcpyHostToDevice", 1_002, 50),
    event("Node", "Conv_0_kernel_time", 1_010, 5),
    event("Kernel", "ort_conv_kernel", 1_060, 200),
    event("Kernel", "ort_add_cuda_kernel", 1_260, 30),
    event("Node", "Relu_1_kernel_time", 1_020, 4),
    event("Kernel", "ort_relu_cuda_kernel", 1_290, 60),
    event("Node", "Reshape_2_kernel_time", 1_030, 3),
    event("Node", "Softmax_3_kernel_time", 1_370, 20, provider="CPUExecutionProvider"),
]
"""A profile of a build that profiles kernels, in the order that its documentation describes:
https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html#gpu-profiling"""


def test_on_a_gpu_a_node_takes_as_long_as_its_kernels_and_no_node_hides_another() -> None:
    (profile,) = onnxruntime._profiles(GPU_EVENTS, [5.0])
    microseconds = [
        (layer.name, round(1e6 * (layer.start - 5)), round(1e6 * (layer.end - layer.start)))
        for layer in profile.layers
    ]
    assert microseconds == [
        ("Conv_0", 10, 230),
        ("Relu_1", 240, 60),
        ("Reshape_2", 300, 0),
        ("Softmax_3", 370, 20),
    ]
    assert not profile.of_launches


def test_a_profile_without_kernels_is_of_launches_unless_each_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    loaded = onnxruntime.load(Load({"graph": str(GRAPH)}, "cpu", 1, {}))
    on_gpu = loaded._replace(device="cuda:0")
    arrays = {"image": IMAGES}
    assert not onnxruntime.layers(loaded, arrays).of_launches
    assert onnxruntime.layers(on_gpu, arrays).of_launches
    for name, value in layer_variables_of(onnxruntime.__file__).items():
        monkeypatch.setenv(name, value)
    assert not onnxruntime.layers(on_gpu, arrays).of_launches


WITH_CUDA = """
import sys
sys.path.insert(0, sys.argv[1])
import onnxruntime
from mlms_predictors import Load, onnxruntime as predictor
onnxruntime.cuda_version = "12.8"
others = onnxruntime.get_available_providers()
onnxruntime.get_available_providers = lambda: ["CUDAExecutionProvider", *others]
try:
    predictor.load(Load({"graph": sys.argv[2]}, "cuda:0", None, {}))
except Exception as error:
    print(error)
with open("/proc/self/maps") as maps:
    print(*{line.split()[-1] for line in maps if sys.argv[1] in line}, sep="\\n")
"""
"""A load on a GPU by this build as if it were one for CUDA: its loader of libraries and its session
are ONNX Runtime's own."""


@pytest.mark.skipif(not hasattr(ort_package, "preload_dlls"), reason="before ONNX Runtime 1.21")
def test_cudas_libraries_are_loaded_from_where_pip_put_them(tmp_path: Path) -> None:
    packages = Path(ort_package.__file__).parent
    (tmp_path / "onnxruntime").symlink_to(packages)
    made = [
        tmp_path / "nvidia" / part / "lib" / name
        for part, name in (("cublas", "libcublasLt.so.12"), ("cudnn", "libcudnn.so.9"))
    ]
    source = tmp_path / "stub.c"
    source.write_text("int stub;")
    for path in made:
        path.parent.mkdir(parents=True)
        compile_library(source, path)
    command = [sys.executable, "-c", WITH_CUDA, str(tmp_path), str(GRAPH)]
    done = subprocess.run(command, capture_output=True, text=True)
    loaded = done.stdout.splitlines()
    assert {str(path) for path in made} <= set(loaded), done.stderr
    problem = "CUDAExecutionProvider, ONNX Runtime would use CPUExecutionProvider; its log says why"
    assert f"asked for {problem}; these can't be loaded: libcublas.so.12, " in loaded[0]
    assert loaded[0].endswith(
        "install onnxruntime-gpu[cuda,cudnn], or name their folders in LD_LIBRARY_PATH"
    )


TELLS_NODES = hasattr(ort_package.InferenceSession, "get_provider_graph_assignment_info")


@pytest.mark.skipif(not TELLS_NODES, reason="before ONNX Runtime 1.24")
def test_a_provider_that_takes_no_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    azure = "AzureExecutionProvider"  # it takes only nodes that call a service
    if azure not in ort_package.get_available_providers():
        pytest.skip(f"this build has no {azure}")
    monkeypatch.setitem(onnxruntime._PROVIDERS, "xnnpack", azure)
    reason = f"{azure} takes none of the model's nodes: {LAYERS} nodes on CPUExecutionProvider"
    with pytest.raises(RuntimeError, match=reason):
        onnxruntime.load(Load({"graph": str(GRAPH)}, "cpu", 1, {"provider": "xnnpack"}))


def test_calls_by_a_graph_keep_their_inputs_in_place_for_each_shape() -> None:
    loaded = onnxruntime.load(Load({"graph": str(GRAPH)}, "cpu", 1, {}))
    graphs: dict[Any, Any] = {}  # the CPU ignores their numbers
    loaded = loaded._replace(model=loaded.model._replace(graphs=graphs))
    batches = [IMAGES, IMAGES[::-1].copy(), IMAGES[:1]]
    calls = [onnxruntime.bind(loaded, {"image": images}) for images in batches]
    for images, call in zip(batches, calls, strict=True):
        assert_close(call()[0], reference(images))
    assert len(graphs) == 2
    assert_close(onnxruntime.predict(loaded, {"image": IMAGES})[0], reference(IMAGES))
    assert len(graphs) == 2


def test_tensorrt_captures_a_graph_for_one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "_TENSORRT", "CPUExecutionProvider")
    loaded = onnxruntime.load(Load({"graph": str(GRAPH)}, "cpu", 1, {}))
    loaded = loaded._replace(model=loaded.model._replace(graphs={}))
    for images in (IMAGES, IMAGES[::-1].copy()):
        assert_close(onnxruntime.predict(loaded, {"image": images})[0], reference(images))
    with pytest.raises(ValueError, match="captures a graph for one shape; leave out cuda_graph"):
        onnxruntime.bind(loaded, {"image": IMAGES[:1]})


def test_what_a_provider_of_gpus_would_not_do_or_do_elsewhere_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort_package, "get_available_providers", lambda: providers)
    with pytest.raises(ValueError, match=r"write devices: \[cuda:N\]"):
        onnxruntime._providers("cuda:0", {"provider.device_id": 1})
    assert onnxruntime._providers("cuda:0", {"cuda_graph": True})
    monkeypatch.setattr(ort_package, "__version__", "1.17.3")
    with pytest.raises(RuntimeError, match=r"cuda_graph needs ONNX Runtime 1\.18"):
        onnxruntime._providers("cuda:0", {"cuda_graph": True})
    assert onnxruntime._gpu_providers("tensorrt", "0", {"tf32": True})
    with pytest.raises(ValueError, match='NVIDIA_TF32_OVERRIDE: "0"'):
        onnxruntime._gpu_providers("tensorrt", "0", {"tf32": False})


def test_a_session_that_cannot_be_made_is_not_made_without_its_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"config.session.intra_op_thread_affinities": "none"}
    with pytest.raises(RuntimeError, match="none"):
        onnxruntime.load(Load({"graph": str(GRAPH)}, "cpu", 2, options))
    assert "Falling back" not in capsys.readouterr().out


def test_a_cuda_graph_is_asked_for_by_its_option() -> None:
    names = {"provider.enable_cuda_graph": "write cuda_graph: true", "cuda_graph": "leave it out"}
    for name, advice in names.items():
        with pytest.raises(ValueError, match=advice):
            onnxruntime.load(Load({"graph": str(GRAPH)}, "cpu", 1, {name: True}))
    for provider, option in (("cuda", "enable_cuda_graph"), ("tensorrt", "trt_cuda_graph_enable")):
        (_, own), *_ = onnxruntime._gpu_providers(provider, "0", {"cuda_graph": True})
        assert own[option] == "1"
