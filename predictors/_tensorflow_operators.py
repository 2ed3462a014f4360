"""The operators of a TensorFlow graph that do more than compute, found before it is loaded."""

import os
import re
from typing import Any, Iterable, Iterator, List, Optional

_ADVICE = "allow it with --mlms-allow-code"

_EFFECTS = re.compile(
    r"""
    (Eager)?PyFunc(Stateless)?                                          # Python
    | .*(Rpc|DataService|BigQuery|Bigtable).* | _?(Host)?(Send|Recv)    # hosts
    | ReadFile | WriteFile | MatchingFiles | ImmutableConst             # files
    | (Save|Restore|LoadAndRemap|MergeV2Checkpoint|Checkpoint).*
    | .*(Dataset|Reader).* | .*Summary(File|Db)?Writer.* | Write.*Summary
    | _?Debug.*                                                         # either, by its address
    """,
    re.VERBOSE,
)
"""Operators that reach files, hosts or Python; tables of vocabularies may be read from files."""


def check_graph(definition: Any, roots: Optional[Iterable[str]] = None) -> None:
    """Raise RuntimeError where a GraphDef does more than compute.

    Of ``roots``, which are names, count the nodes that they need and the functions that they are.
    """
    functions = {function.signature.name: function for function in definition.library.function}
    wanted = set(functions if roots is None else roots)
    nodes = [functions[name].node_def for name in wanted if name in functions]
    nodes.append(definition.node if roots is None else _needed(definition.node, wanted))
    seen = wanted & set(functions)
    while nodes:
        for node in nodes.pop():
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
    for graph in model.meta_graphs:
        check_graph(graph.graph_def, _roots(graph))


def _roots(graph: Any) -> Iterator[str]:
    """Yield the nodes and functions of a MetaGraphDef that run when it is loaded or called."""
    yield from graph.object_graph_def.concrete_functions
    for signature in graph.signature_def.values():
        for tensor in signature.outputs.values():
            yield _node(tensor.name)
    for name, collection in graph.collection_def.items():
        if "init" in name or "main_op" in name:
            for tensor in collection.node_list.value:
                yield _node(tensor)


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


def _check(node):
    stream = node.attr["output_stream"].s if "output_stream" in node.attr else b""
    if _EFFECTS.fullmatch(node.op) or b":" in stream:
        text = "its operator %s (%.80s) reaches files, hosts or Python; %s"
        raise RuntimeError(text % (node.op, node.name, _ADVICE))
