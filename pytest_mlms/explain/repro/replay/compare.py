"""The largest difference of outputs, computed where numpy is: run by path in a side's environment.

``python compare.py OURS.npz REFERENCE.npz CLOSENESS`` prints an object of JSON; CLOSENESS is one of
the fields rtol, atol and rules of an expectation.
"""

import json
import sys
from typing import Any, Dict, List

import numpy

ROUNDING_SHARE = 1e-4
"""The difference that is taken for rounding, as a share of the largest of like values."""

EPSILONS = 8


def largest_difference(
    ours: Dict[str, Any], reference: Dict[str, Any], closeness: Dict[str, Any]
) -> Dict[str, Any]:
    """Return the largest difference of arrays by name, and its place.

    ``deviation`` is |a - b| / (atol + rtol |b|), b the reference; where ``atol`` is None, it is a
    small share of the size of like values, by the ``rules`` of outputs, of
    which others aren't compared. Whole numbers deviate by
    infinity where they differ, and nothing does from NaN. ``problem`` says why arrays can't be
    compared, or is "".
    """
    worst: Dict[str, Any] = {"deviation": 0.0, "problem": ""}
    rules = closeness["rules"]
    for name in sorted(set(reference) & set(rules)) or sorted(reference):
        problem = _problem(name, ours.get(name), reference[name])
        if problem:
            return dict(worst, deviation=float("inf"), problem=problem, output=name)
        found = _largest(ours[name], reference[name], closeness, rules.get(name, {}))
        if "output" not in worst or found["deviation"] > worst["deviation"]:
            worst = dict(found, output=name, problem="")
    return worst


def _problem(name, ours, reference):
    if ours is None:
        return "%r is absent" % name
    if ours.shape != reference.shape:
        return "%r is %s, and %s of the other side" % (name, ours.shape, reference.shape)
    if ours.dtype != reference.dtype:
        return "%r is %s, and %s of the other side" % (name, ours.dtype, reference.dtype)
    is_real = reference.dtype.kind in "fc"
    if is_real and not numpy.isfinite(ours).all() and numpy.isfinite(reference).all():
        return "%r has NaN or infinity" % name
    return ""


def _largest(ours, reference, closeness, rule):
    if not ours.size:
        return {"deviation": 0.0}
    if reference.dtype.kind not in "fciub":
        differs = numpy.where(_equal(ours, reference), 0.0, numpy.inf)
        return _most_deviating(differs, ours, reference)
    rtol, atol = closeness["rtol"], closeness["atol"]
    allowed = _rounding(reference, rule) if atol is None else atol
    if reference.dtype.kind in "iub":
        allowed = numpy.floor(allowed)
        rtol = 0.0
    a = _real(ours)
    b = _real(reference)
    sizes = numpy.abs(b)
    if numpy.ndim(allowed) and a.ndim > numpy.ndim(allowed):  # of complex values
        allowed = allowed[..., numpy.newaxis]
    with numpy.errstate(all="ignore"):
        absolute = numpy.abs(a - b)
        same = (a == b) | numpy.isnan(b)
        if reference.dtype.kind in "iub":  # large ones are alike as float64
            same = _equal(ours, reference)
        deviation = numpy.where(same, 0.0, absolute / (allowed + rtol * sizes))
    deviation = numpy.where(numpy.isnan(deviation), numpy.inf, deviation)
    return _most_deviating(deviation, a, b)


def _equal(ours, reference):
    return numpy.atleast_1d(ours == reference)


def _most_deviating(deviation, ours, reference):
    """Return the largest deviation, its place and the values there: numbers, or texts."""
    place = numpy.unravel_index(int(deviation.argmax()), deviation.shape)
    return {
        "deviation": float(deviation[place]),
        "place": [int(index) for index in place],
        "ours": _plain(ours, place),
        "reference": _plain(reference, place),
        "elements": int((deviation > 1).sum()),
        "of": int(deviation.size),
    }


def _plain(values, place):
    value = numpy.atleast_1d(values)[place]
    return float(value) if values.dtype.kind == "f" else str(value)


def _rounding(reference, rule):
    """Return what is taken for rounding of each element.

    It is a share of the largest like value, or of what is usual for such values of all inputs. Like
    are those of a row of the last axis, but of an output with an ``unlike`` axis those along the
    others. The ``share`` is that of the type at least.
    """
    if reference.dtype.kind not in "fc":
        return 0.0
    sizes = numpy.atleast_1d(numpy.abs(reference).astype(numpy.float64))
    sizes = numpy.where(numpy.isfinite(sizes), sizes, 0.0)
    epsilon = EPSILONS * float(numpy.finfo(reference.dtype).eps)
    scale = sizes
    floor = 0.0
    unlike = rule.get("unlike")
    if sizes.ndim > 1 and unlike is not None:
        axes = tuple(axis for axis in range(1, sizes.ndim) if axis != unlike % sizes.ndim)
        scale = sizes.max(axis=axes, keepdims=True) if axes else sizes
    elif sizes.ndim > 1:
        longer = [axis for axis in range(1, sizes.ndim) if sizes.shape[axis] > 1]
        scale = sizes.max(axis=longer[-1] if longer else sizes.ndim - 1, keepdims=True)
        floor = epsilon * sizes.max(axis=tuple(range(1, sizes.ndim)), keepdims=True)
    positive = scale > 0
    logs = numpy.log(numpy.where(positive, scale, 1.0)).sum(axis=0)
    counts = positive.sum(axis=0)
    usual = numpy.where(counts > 0, numpy.exp(logs / numpy.maximum(counts, 1)), 0.0)
    share = max(ROUNDING_SHARE, epsilon, rule.get("share") or 0.0)
    allowed = share * numpy.maximum(scale, usual)
    tiny = EPSILONS * float(numpy.finfo(numpy.float32).tiny)
    return numpy.maximum(numpy.maximum(allowed, floor), tiny)


def _real(values):
    """Return values as float64 with an axis, complex ones with a last one of both parts."""
    if values.dtype.kind == "c":
        values = numpy.stack([values.real, values.imag], axis=-1)
    return numpy.atleast_1d(values).astype(numpy.float64)


def _load(path):
    with numpy.load(path, allow_pickle=False) as file:
        return dict(file)


def _main(arguments: List[str]) -> None:
    ours, reference, closeness = arguments
    found = largest_difference(_load(ours), _load(reference), json.loads(closeness))
    print(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1:])
