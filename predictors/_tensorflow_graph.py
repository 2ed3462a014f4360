"""A TensorFlow graph with its weights in it, in a TF1 session.

To run it, to trace it, to look inside.
"""

import time

import tensorflow
from mlms_predictors import Layer, Tensor
from mlms_predictors._run.timeline import LARGEST_STEP, wall_offset

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


def freeze(function, names, where):
    """Return a concrete function of TensorFlow 2 as a Frozen that runs one operator at a time.

    Its inputs are in the order of ``names``.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    made = convert_variables_to_constants_v2(function)
    by_name = {tensor.op.name: tensor.name for tensor in made.inputs}
    inputs = [by_name.get(name, tensor.name) for name, tensor in zip(names, made.inputs)]
    threads = tensorflow.config.threading.get_intra_op_parallelism_threads()
    return Frozen(
        made.graph.as_graph_def(),
        inputs,
        [tensor.name for tensor in made.outputs],
        where,
        threads,
        True,
    )


def read_graph(path, inputs, outputs, where, threads):
    """Read a GraphDef; inputs and outputs are found where they aren't given."""
    definition = v1.GraphDef()
    try:
        with open(path, "rb") as file:
            definition.ParseFromString(file.read())
    except Exception as error:  # protobuf's DecodeError, of whichever protobuf there is
        raise RuntimeError("it is no frozen graph of TensorFlow: %s" % error) from error
    if not definition.node:
        raise RuntimeError("it is no frozen graph of TensorFlow: it has no nodes")
    read = {name.split(":")[0].lstrip("^") for node in definition.node for name in node.input}
    sources = [node.name for node in definition.node if node.op == "Placeholder"]
    ends = [
        node.name
        for node in definition.node
        if node.name not in read and node.op not in ("NoOp", "Const")
    ]
    names = [
        [t.name for t in asked] if asked else found
        for asked, found in ((inputs, sources), (outputs, ends))
    ]
    return Frozen(
        definition, _with_index(names[0]), _with_index(names[1]), where, threads or 0, bool(threads)
    )


def _with_index(names):
    return [name if ":" in name else name + ":0" for name in names]


class Frozen:
    """A session on a graph, with the names of the tensors that go in and come out."""

    def __init__(self, definition, inputs, outputs, where, threads, in_turn):
        graph = tensorflow.Graph()
        with graph.as_default(), tensorflow.device(where):
            tensorflow.graph_util.import_graph_def(definition, name="")
        config = v1.ConfigProto(
            intra_op_parallelism_threads=threads, inter_op_parallelism_threads=int(in_turn)
        )
        config.gpu_options.allow_growth = config.allow_soft_placement = True
        self._made_of = definition, inputs, outputs, where, threads
        self._session = v1.Session(graph=graph, config=config)
        self._names = inputs, outputs
        self._graph = graph
        self._kinds = None  # of operators as they run, by their names, once they ran

    def in_turn(self):
        """Return another that runs one operator at a time."""
        return Frozen(*self._made_of, True)

    def tensors(self, side):
        """Return the signature's inputs (0) or outputs (1), called as their nodes are."""
        tensors = [self._graph.get_tensor_by_name(name) for name in self._names[side]]
        return [Tensor(t.name.replace(":0", ""), t.dtype.name, _shape(t)) for t in tensors]

    def bind(self, arrays):
        """Return a call that runs these arrays."""
        inputs, outputs = self._names
        run = self._session.make_callable(outputs, inputs)
        feeds = [arrays[tensor.name] for tensor in self.tensors(0)]
        return lambda: run(*feeds)

    def trace(self, feeds):
        """Run once when warm; return begin, end, and the layers as the executor ran them, by the
        wall clock.

        The end is the executor's: what the session does after it is to write down all this.
        """
        if self._kinds is None:  # once: the graphs have all weights in them
            graphs = self._watched(feeds, output_partition_graphs=True).partition_graphs
            self._kinds = {node.name: node.op for graph in graphs for node in graph.node}
        self._watched(feeds)
        offset, start = wall_offset(), time.perf_counter()
        facts = self._watched(feeds)
        if abs(wall_offset() - offset) > LARGEST_STEP:
            raise RuntimeError(
                "the wall clock, which TensorFlow's layers are timed by, was set meanwhile; trace again"
            )
        stats = [stat for device in facts.step_stats.dev_stats for stat in _on(device)]
        ran = [
            _layer(stat, self._kinds.get(stat.node_name.split(":")[0], ""), offset)
            for stat in stats
        ]
        shown = [layer for layer in ran if layer.type and layer.type not in _SILENT]
        return start, max(layer.end for layer in ran), sorted(shown, key=lambda layer: layer.start)

    def _watched(self, feeds, **options):
        """Run once; return what the session noted of it."""
        facts, (inputs, outputs) = v1.RunMetadata(), self._names
        level = (
            v1.RunOptions.SOFTWARE_TRACE if "CPU" in self._made_of[3] else v1.RunOptions.FULL_TRACE
        )  # with CUPTI
        options = v1.RunOptions(trace_level=level, **options)
        self._session.run(outputs, dict(zip(inputs, feeds)), options=options, run_metadata=facts)
        return facts

    def structure(self, shapes):
        """Return the graph's Structure for inputs of these shapes."""
        from mlms_predictors._tensorflow_structure import structure

        return structure(self._made_of[0], *self._names, shapes)

    def inner(self, feeds):
        """Run once, and return each operator's first output, by the operator's name."""
        order = [op for op in self._graph.get_operations() if op.type not in _SILENT and op.outputs]
        order = [
            op for op in order if op.outputs[0].dtype.is_floating or op.outputs[0].dtype.is_integer
        ]
        given = self._session.run([op.outputs[0] for op in order], dict(zip(self._names[0], feeds)))
        return [(op.name, array) for op, array in zip(order, given)]


def _on(device):
    """Return the operators' own times.

    Of a GPU those of its kernels, which TensorFlow lists under one stream.
    """
    name = device.device
    return (
        device.node_stats
        if "/stream:all" in name or ("CPU" in name and "stream" not in name)
        else []
    )


def _layer(stat, kind, offset):
    begin = (
        stat.all_start_nanos or stat.all_start_micros * 1000
    ) - offset  # seconds since 1970 would lose 0.2 us
    start, end = (begin + stat.op_start_rel_nanos) / 1e9, (begin + stat.op_end_rel_nanos) / 1e9
    sizes = (
        [dimension.size for dimension in stat.output[0].tensor_description.shape.dim]
        if stat.output
        else None
    )
    size = sum(out.tensor_description.allocation_description.requested_bytes for out in stat.output)
    shape = tuple(sizes) if sizes is not None else None
    return Layer(stat.node_name, kind, start, end, size or None, shape)


def _shape(tensor):
    return tuple(tensor.shape.as_list()) if tensor.shape.rank is not None else ()
