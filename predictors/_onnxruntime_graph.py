"""An ONNX file with every value as an output, made without the package onnx.

Where a protobuf message has a field twice, a reader merges the two; so a second ``graph`` that
holds nothing but outputs is appended, and the rest of the file stays
(https://protobuf.dev/programming-guides/encoding/#last-one-wins).
"""

_MODEL_GRAPH, _GRAPH_NODE, _GRAPH_OUTPUT, _NODE_OUTPUT, _VALUE_NAME = 7, 1, 12, 2, 1  # onnx.proto


def with_all_outputs(model):
    """Return the model's bytes with more outputs, and the names of all that nodes give, in their
    order.
    """
    names, present = [], set()
    for graph in fields(model, _MODEL_GRAPH):
        for node in fields(graph, _GRAPH_NODE):
            names += [bytes(name).decode() for name in fields(node, _NODE_OUTPUT) if len(name)]
        present |= {
            bytes(fields(value, _VALUE_NAME)[0]).decode() for value in fields(graph, _GRAPH_OUTPUT)
        }
    values = [_field(_VALUE_NAME, name.encode()) for name in names if name not in present]
    outputs = b"".join(_field(_GRAPH_OUTPUT, value) for value in values)
    return bytes(model) + _field(_MODEL_GRAPH, outputs), names


def fields(message, number):
    """Return the contents of each field of this number that has a length."""
    view, place, found = memoryview(message), 0, []
    while place < len(view):
        key, place = _varint(view, place)
        kind = key & 7
        if kind == 0:
            _, place = _varint(view, place)
            continue
        size, place = _varint(view, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
        if kind == 2 and key >> 3 == number:
            found.append(view[place : place + size])
        place += size
    return found


def _varint(view, place):
    value = shift = 0
    while True:
        byte = view[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7


def _field(number, content):
    return _to_varint(number << 3 | 2) + _to_varint(len(content)) + content


def _to_varint(value):
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(data + bytearray([value]))
