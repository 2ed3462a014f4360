"""What every predictor asks of a request, in the same words."""

import re

from .protocol import Tensor

_TENSOR = re.compile(r"\s*([^\s\[]+)(?:\s+(\w+)(?:\[([^\]]*)\])?)?\s*$")


def refuse_unknown(options, known):
    """Return ``options``; raises ValueError where there is one that the predictor doesn't know."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            "no option %r; this predictor knows %s" % (unknown[0], ", ".join(known) or "none")
        )
    return options


def refuse_gpu(device, framework):
    """Raise ValueError where a predictor that runs on the CPU only is asked for another device."""
    if device != "cpu":
        raise ValueError("asked for %s; %s runs on the cpu here" % (device, framework))


def file_of(files, role, what):
    """Return the path of a role's file.

    Raises ValueError, with ``what`` it should be, where the manifest has none.
    """
    if role not in files:
        raise ValueError(
            "there is no %r file; write into the manifest's model: '%s: %s'" % (role, role, what)
        )
    return files[role]


def read_tensors(text):
    """Read names, types and shapes: ``image float32[?,1,8,8]; logits``.

    Raises ValueError where it is none.
    """
    tensors = []
    for part in text.split(";"):
        match = _TENSOR.match(part)
        sizes = match and [
            size.strip() for size in (match.group(3) or "").split(",") if size.strip()
        ]
        if not match or not all(size == "?" or size.isdigit() for size in sizes):
            raise ValueError("%r is no tensor; write it as: image float32[?,1,8,8]" % part.strip())
        shape = tuple(None if size == "?" else int(size) for size in sizes)
        tensors.append(Tensor(match.group(1), match.group(2) or "", shape))
    return tensors


def check(inputs, arrays):
    """Raise ValueError where an array lacks, or isn't of the type and shape that the model takes."""
    for tensor in inputs:
        if tensor.name not in arrays:
            raise ValueError(
                "there is no array for input %r; given were %s" % (tensor.name, sorted(arrays))
            )
        array = arrays[tensor.name]
        if array.dtype.name != tensor.dtype or not _fits(array.shape, tensor.shape):
            found, wanted = (
                _shown(array.dtype.name, array.shape),
                _shown(tensor.dtype, tensor.shape),
            )
            raise ValueError(
                "input %r is %s, and the model takes %s" % (tensor.name, found, wanted)
            )


def _fits(shape, declared):
    same = len(shape) == len(declared) and all(b in (None, a) for a, b in zip(shape, declared))
    return same or not declared  # a model may declare none at all


def _shown(dtype, shape):
    return "%s %s" % (dtype, " x ".join("any" if size is None else str(size) for size in shape))
