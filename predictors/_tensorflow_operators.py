"""The operators of a TensorFlow graph that do more than compute, found before it is loaded."""

import os
import re
from typing import Any, Iterable, Iterator, List, Optional

_ADVICE = "allow it with --mlms-allow-code"

_EFFECTS = re.compile(
    r"""
    (Eager)?PyFunc(Stateless)?                                          # Python
    | .*(Rpc|DataService|BigQuery|Bigtable).* | _?(Host)?(Send|Recv) | RemoteCall    # hosts
    | ReadFile | WriteFile | MatchingFiles | ImmutableConst | RecordInput            # files
    | (Save|Restore|LoadAndRemap|MergeV2Checkpoint|Checkpoint|FileSystem).*
    | DistributedSave | GenerateVocabRemapping | Skipgram | .*TRTResource
    | .*(Dataset|Reader).* | .*Summary(File|Db)?Writer.* | Write.*Summary | ImportEvent
    | _?Debug.*                                                         # either, by its address
    """,
    re.VERBOSE,
)
"""Operators that reach files, hosts or Python; tables of vocabularies may be read from files."""

_MAY_BE_FILES = ("output_stream", "descriptor_source", "vocab_file")
"""Attributes of others that name a file, or what is none."""

_NO_FILE = re.compile(rb"stdout|stderr|log\(\w+\)|local://|(bytes://.*)?", re.DOTALL)


def check_graph(definition: Any, roots: Optional[Iterable[str]] = None, weights: str = "") -> None:
    """Raise RuntimeError where a GraphDef does more than compute.

    Of ``roots``, which are names, count the nodes that they need and the functions that they are.
    What restores variables from the file that the node ``weights`` names is no effect.
    """
    functions = {function.signature.name: function for function in definition.library.function}
    wanted = set(functions if roots is None else roots)
    nodes = [functions[name].node_def for name in wanted if name in functions]
    nodes.append(definition.node if roots is None else _needed(definition.node, wanted))
    seen = wanted & set(functions)
    while nodes:
        for node in nodes.pop():
            if not _restores(node, weights):
                _check(node)
            for name in _called(node):
                if name in functions and name not in seen:
                    seen.add(name)
                    nodes.append(functions[name].node_def)


def check_saved_model(folder: str) -> None:
    """Raise RuntimeError where what a SavedModel is loaded and called for does more than compute.

    The parts that save its variables again are left alone: each SavedModel has them.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel()
    try:
        with open(os.path.join(folder, "saved_model.pb"), "rb") as file:
            model.ParseFromString(file.read())
    except Exception as error:  # protobuf's DecodeError, of whichever protobuf there is
        raise RuntimeError("its saved_model.pb can't be read: %s" % error) from error
    graphs = model.meta_graphs
    is_of_1 = len(graphs) != 1 or not graphs[0].HasField("object_graph_def")
    for graph in graphs:
        check_graph(graph.graph_def, _roots(graph))
        if is_of_1:  # its own nodes restore the variables
            saver = graph.saver_def
            file = _node(saver.filename_tensor_name)
            check_graph(graph.graph_def, [_node(saver.restore_op_name)], file)


def _roots(graph: Any) -> Iterator[str]:
    """Yield the nodes and functions of a MetaGraphDef that run when it is loaded or called."""
    yield from graph.object_graph_def.concrete_functions
    for node in graph.object_graph_def.nodes:
        yield from node.function.concrete_functions
        yield node.bare_concrete_function.concrete_function_name
    for signature in graph.signature_def.values():
        for tensor in signature.outputs.values():
            yield from map(_node, _tensors(tensor))
    for name, collection in graph.collection_def.items():
        if "init" in name or "main_op" in name:
            for tensor in collection.node_list.value:
                yield _node(tensor)


def _tensors(info: Any) -> Iterator[str]:
    """Yield the names of the tensors in a TensorInfo, which may be a sparse or composite one."""
    yield info.name
    sparse = info.coo_sparse
    yield from (sparse.values_tensor_name, sparse.indices_tensor_name)
    yield sparse.dense_shape_tensor_name
    for part in info.composite_tensor.components:
        yield from _tensors(part)


def _needed(nodes, roots) -> List[Any]:
    """Return the nodes that these need, by their inputs."""
    by_name = {node.name: node for node in nodes}
    waiting = [name for name in roots if name in by_name]
    found = {}
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found:
            found[name] = by_name[name]
            waiting += [_node(given) for given in by_name[name].input]
    return list(found.values())


def _node(tensor):
    """Return the node of a tensor, ``name:0``, or of what comes before, ``^name``."""
    return tensor.lstrip("^").partition(":")[0]


def _called(node) -> Iterator[str]:
    yield node.op
    for value in node.attr.values():
        yield value.func.name
        for function in value.list.func:
            yield function.name


def _restores(node, weights):
    """Return whether a node reads variables from the file of a SavedModel's own weights."""
    is_of_weights = bool(weights) and list(map(_node, node.input[:1])) == [weights]
    return is_of_weights and node.op.startswith("Restore")


def _check(node):
    if _EFFECTS.fullmatch(node.op) or any(_names_file(node, key) for key in _MAY_BE_FILES):
        text = "its operator %s (%.80s) reaches files, hosts or Python; %s"
        raise RuntimeError(text % (node.op, node.name, _ADVICE))


def _names_file(node, key):
    if key not in node.attr:
        return False
    value = node.attr[key]  # a function's may be a placeholder for what it is called with
    return bool(value.placeholder) or _NO_FILE.fullmatch(value.s) is None
