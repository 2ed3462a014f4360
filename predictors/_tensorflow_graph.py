"""A TensorFlow graph with its weights in it, in a TF1 session that runs, traces and opens it."""

import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow
from mlms_predictors import Arrays, Call, InnerOutputs, Layer, Profile, Structure, Tensor
from mlms_predictors._run.timeline import LARGEST_STEP, wall_offset
from mlms_predictors._tensorflow_operators import check_graph

v1 = tensorflow.compat.v1
_SILENT = (
    "Const",
    "Placeholder",
    "NoOp",
    "_Arg",
    "_Retval",
    "Identity",
    "ReadVariableOp",
    "VarHandleOp",
)
"""Operators that are no layers."""
_NANOSECONDS = 1e9
_NO_GRAPH = "it is no frozen graph of TensorFlow: "


class GraphParts(NamedTuple):
    """A GraphDef and its signature; ``place`` is TensorFlow's name of the device.

    ``threads`` are those within an operator, 0 for TensorFlow's own choice.
    """

    definition: Any
    inputs: List[str]
    outputs: List[str]
    place: str
    threads: int


def freeze(function: Any, names: List[str], place: str) -> "FrozenGraph":
    """Return a concrete function of TensorFlow 2 as a graph that runs one operator at a time.

    Its inputs are in the order of ``names``.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    made = convert_variables_to_constants_v2(function)
    by_operator = {tensor.op.name: tensor.name for tensor in made.inputs}
    inputs = []
    for name, tensor in zip(names, made.inputs):
        inputs.append(by_operator.get(name, tensor.name))
    parts = GraphParts(
        definition=made.graph.as_graph_def(),
        inputs=inputs,
        outputs=[tensor.name for tensor in made.outputs],
        place=place,
        threads=tensorflow.config.threading.get_intra_op_parallelism_threads(),
    )
    return FrozenGraph(parts, one_at_a_time=True)


def read_graph(
    path: str,
    inputs: List[Tensor],
    outputs: List[Tensor],
    place: str,
    threads: Optional[int],
    allow_code: bool = False,
) -> "FrozenGraph":
    """Read a GraphDef; inputs and outputs are found where none are given.

    Raises RuntimeError where the file is none.
    """
    definition = v1.GraphDef()
    try:
        with open(path, "rb") as file:
            definition.ParseFromString(file.read())
    except Exception as error:  # protobuf's DecodeError, of whichever protobuf there is
        raise RuntimeError(_NO_GRAPH + str(error)) from error
    if not definition.node:
        raise RuntimeError(_NO_GRAPH + "it has no nodes")
    if not allow_code:
        check_graph(definition)
    sources = [tensor.name for tensor in inputs] or _placeholders(definition)
    ends = [tensor.name for tensor in outputs] or _unread(definition)
    parts = GraphParts(
        definition=definition,
        inputs=_with_index(sources),
        outputs=_with_index(ends),
        place=place,
        threads=threads or 0,
    )
    return FrozenGraph(parts, one_at_a_time=bool(threads))


def _placeholders(definition):
    return [node.name for node in definition.node if node.op == "Placeholder"]


def _unread(definition):
    """Return the nodes that compute and that no node reads."""
    read = set()
    for node in definition.node:
        for name in node.input:
            read.add(name.split(":")[0].lstrip("^"))
    found = []
    for node in definition.node:
        if node.name not in read and node.op not in ("NoOp", "Const"):
            found.append(node.name)
    return found


def _with_index(names):
    """Return the names of tensors for those of nodes: their first outputs."""
    return [name if ":" in name else name + ":0" for name in names]


class FrozenGraph:
    """A session on a graph, with the names of the tensors that go in and come out."""

    def __init__(self, parts: GraphParts, one_at_a_time: bool) -> None:
        graph = tensorflow.Graph()
        with graph.as_default(), tensorflow.device(parts.place):
            tensorflow.graph_util.import_graph_def(parts.definition, name="")
        config = v1.ConfigProto(
            intra_op_parallelism_threads=parts.threads,
            inter_op_parallelism_threads=int(one_at_a_time),
            use_per_session_threads=one_at_a_time,  # else those of the process's first session
            allow_soft_placement=True,
        )
        config.gpu_options.allow_growth = True
        self._graph = graph
        self._parts = parts
        self._session = v1.Session(graph=graph, config=config)
        self._types: Dict[str, str] = {}  # of operators as they run, by name; empty until traced

    def one_at_a_time(self) -> "FrozenGraph":
        """Return another that runs one operator at a time."""
        return FrozenGraph(self._parts, one_at_a_time=True)

    def input_tensors(self) -> List[Tensor]:
        """Return the signature's inputs under the names of their nodes."""
        return self._tensors(self._parts.inputs)

    def output_tensors(self) -> List[Tensor]:
        """Return the signature's outputs under the names of their nodes."""
        return self._tensors(self._parts.outputs)

    def bind(self, arrays: Arrays) -> Call:
        """Return a call that runs these arrays."""
        outputs = self.output_tensors()
        fetched = [self._parts.outputs[outputs.index(tensor)] for tensor in returned(outputs)]
        run = self._session.make_callable(fetched, self._parts.inputs)
        feeds = [arrays[tensor.name] for tensor in self.input_tensors()]
        return lambda: run(*feeds)

    def trace(self, feeds: List[Any]) -> Profile:
        """Run once when warm; return when the executor ran each layer.

        The call ends with the last layer, as the session then writes down what it saw. Raises
        RuntimeError where the wall clock, by which layers are timed, was set meanwhile.
        """
        if not self._types:  # only once: the graphs have all weights in them
            self._types = self._types_as_run(feeds)
        self._traced(feeds)
        offset = wall_offset()
        start = time.perf_counter()
        facts = self._traced(feeds)
        if abs(wall_offset() - offset) > LARGEST_STEP:
            text = "the wall clock, which TensorFlow's layers are timed by, was set meanwhile; "
            raise RuntimeError(text + "trace again")
        ends = []
        layers = []
        for stat in _statistics(facts):
            kind = self._types.get(stat.node_name.split(":")[0], "")
            layer = _layer(stat, kind, offset)
            ends.append(layer.end)
            if kind and kind not in _SILENT:
                layers.append(layer)
        layers.sort(key=lambda layer: layer.start)
        return Profile(start, max(ends), layers)

    def structure(self, shapes: List[Tuple[int, ...]]) -> Structure:
        """Return the graph's Structure for inputs of these shapes."""
        from mlms_predictors._tensorflow_structure import structure

        parts = self._parts
        return structure(parts.definition, parts.inputs, parts.outputs, shapes)

    def inner(self, feeds: List[Any]) -> InnerOutputs:
        """Run once, and return each operator's first output, by the operator's name."""
        shown = []
        for op in self._graph.get_operations():
            is_layer = op.type not in _SILENT
            if is_layer and op.outputs and _is_number(op.outputs[0]):
                shown.append(op)
        outputs = [op.outputs[0] for op in shown]
        by_input = dict(zip(self._parts.inputs, feeds))
        arrays = self._session.run(outputs, by_input)
        return [(op.name, array) for op, array in zip(shown, arrays)]

    def _tensors(self, names):
        found = []
        for name in names:
            tensor = self._graph.get_tensor_by_name(name)
            node = tensor.name.replace(":0", "")
            found.append(Tensor(node, tensor.dtype.name, shape_of_spec(tensor)))
        return found

    def _types_as_run(self, feeds):
        """Return the types of the operators that remain after TensorFlow's optimization."""
        facts = self._traced(feeds, output_partition_graphs=True)
        types = {}
        for graph in facts.partition_graphs:
            for node in graph.node:
                types[node.name] = node.op
        return types

    def _traced(self, feeds, **options):
        """Run once; return the session's metadata of the run."""
        level = v1.RunOptions.FULL_TRACE  # with CUPTI
        if "CPU" in self._parts.place:
            level = v1.RunOptions.SOFTWARE_TRACE
        facts = v1.RunMetadata()
        self._session.run(
            self._parts.outputs,
            dict(zip(self._parts.inputs, feeds)),
            options=v1.RunOptions(trace_level=level, **options),
            run_metadata=facts,
        )
        return facts


def shape_of_spec(spec: Any) -> Tuple[Optional[int], ...]:
    """Return the shape of a tensor or its specification; one of unknown rank has none."""
    if spec.shape.rank is None:
        return ()
    return tuple(spec.shape.as_list())


def returned(outputs: Sequence[Tensor]) -> List[Tensor]:
    """Return the outputs that a call returns: arrays of numbers, and after them those of texts."""
    numbers = [each for each in outputs if each.dtype not in ("string", "resource", "variant")]
    return numbers + [each for each in outputs if each.dtype == "string"]


def _is_number(tensor):
    return tensor.dtype.is_floating or tensor.dtype.is_integer


def _statistics(facts):
    """Return the statistics of operators, for a GPU those of their kernels.

    TensorFlow lists the kernels under one stream.
    """
    found: List[Any] = []
    for device in facts.step_stats.dev_stats:
        is_cpu = "CPU" in device.device and "stream" not in device.device
        if is_cpu or "/stream:all" in device.device:
            found.extend(device.node_stats)
    return found


def _layer(stat, kind, offset):
    """Return an operator's run as a Layer.

    Seconds since 1970 would lose 0.2 us, so the offset is taken from whole nanoseconds.
    """
    began = stat.all_start_nanos or stat.all_start_micros * 1000
    start = (began - offset + stat.op_start_rel_nanos) / _NANOSECONDS
    end = (began - offset + stat.op_end_rel_nanos) / _NANOSECONDS
    size = 0
    for output in stat.output:
        size += output.tensor_description.allocation_description.requested_bytes
    return Layer(
        name=stat.node_name,
        type=kind,
        start=start,
        end=end,
        bytes=size or None,
        shape=_first_shape(stat),
    )


def _first_shape(stat):
    for output in stat.output:
        return tuple(dimension.size for dimension in output.tensor_description.shape.dim)
    return None
