"""Hypothesis strategies of valid manifests, and of manifests with something wrong anywhere."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.core.tasks import facts_of
from tests.support.small_manifest import IMAGE, small

Strategy = st.SearchStrategy[Any]

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,8}\Z")
DIGESTS = st.from_regex(r"\A[0-9a-f]{64}\Z")
TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=10)

FRACTIONS = st.floats(0, 1) | st.integers(0, 100).map(lambda share: f"{share} %")
_SHARES = st.floats(0, 1, exclude_max=True) | st.integers(0, 100).map(lambda n: f"{n} %")
VALUES: dict[str, Strategy] = {
    "": st.floats(0, 100),
    "fraction": FRACTIONS,
    "s": st.floats(0, 1e6).map(lambda number: f"{number!r} ms"),
    "B": st.integers(0, 10**6).map(lambda number: f"{number} MiB"),
    "/s": st.floats(0, 1e9).map(lambda number: f"{number!r}/s"),
    "J": st.floats(0, 1e6).map(lambda number: f"{number!r} J"),
}


def _version(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))


VERSIONS = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)).map(_version)


def _normalize(scale: Any) -> dict[str, Any]:
    return {"normalize": {"mean": 0.5, "scale": scale}}


_SCALES = st.floats(0.5, 100)
_OTHER_STEPS = st.sampled_from(
    [
        {"resize": {"size": [8, 8], "method": "lanczos", "keep_aspect_ratio": True}},
        {"crop": {"size": [4, 4]}},
        {"color_order": {"to": "BGR"}},
        {"cast": {"to": "float16"}},
    ]
)


def _normalize_steps(channels: int) -> Strategy:
    """Return steps with one scale for all channels, or one for each."""
    each = st.lists(_SCALES, min_size=channels, max_size=channels)
    return (_SCALES | each).map(_normalize)


_NO_STEPS: list[Any] = []
_DECODE_STEPS: dict[int, list[Any]] = {1: [{"decode": {"color": "L"}}], 3: ["decode"]}
"""Channels -> the steps that lead to them."""


@st.composite
def _images(draw: st.DrawFn) -> dict[str, Any]:
    channels = draw(st.sampled_from([1, 3]))
    decode = draw(st.sampled_from([_NO_STEPS, _DECODE_STEPS[channels]]))
    others = draw(st.lists(_OTHER_STEPS | _normalize_steps(channels), max_size=4))
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    return {**IMAGE, "layout": layout, "steps": decode + others}


def _limits(quantity: Quantity) -> Strategy:
    """Return limits on a quantity: one, or a list of them for some devices."""
    value = VALUES[quantity.unit]
    if (quantity.unit, quantity.bound) == ("fraction", "max"):  # 1 alone may be meant as 1 %
        value = _SHARES
    one = st.fixed_dictionaries({quantity.bound: value})
    for_device = st.fixed_dictionaries({quantity.bound: value, "devices": st.just(["cpu"])})
    return one | st.lists(for_device, max_size=2)


_DIVERGENCE_LIMITS = st.fixed_dictionaries({"max": st.floats(0, 100)})
_AGREEMENTS = st.fixed_dictionaries(
    {"reference": st.just("onnxruntime")},
    optional={
        "rtol": st.floats(0, 1),
        "atol": st.floats(0, 1e9),
        "top1": st.fixed_dictionaries({"min": FRACTIONS}),
        "kl": _DIVERGENCE_LIMITS,
        "js": _DIVERGENCE_LIMITS,
        "hellinger": _DIVERGENCE_LIMITS,
    },
)


_MEASURED = facts_of("image-classification").quantities


def _thresholds() -> Strategy:
    limits: dict[str, Strategy] = {"agreement": _AGREEMENTS}
    for name, quantity in QUANTITIES.items():
        is_measured = quantity.kind != "accuracy" or name in _MEASURED
        is_anywhere = not (quantity.under_load or quantity.of_gpu or quantity.of_tokens)
        if quantity.limit_key == name and is_measured and is_anywhere:
            limits[name] = _limits(quantity)
    return st.fixed_dictionaries({}, optional=limits)


_SERVER = {"server": {"rate": "200 /s", "latency": "15 ms", "percentile": 90}}
_EVALUATE = st.fixed_dictionaries(
    {"devices": st.just(["cpu"]) | st.just(["cpu", "cuda:1"])},
    optional={
        "batch_sizes": st.lists(st.integers(1, 999), min_size=1, max_size=4, unique=True),
        "scenarios": st.sampled_from([["offline", "single_stream"], ["offline", _SERVER]]),
        "seed": st.integers(0, 2**40),
    },
)
_DATASETS = st.fixed_dictionaries(
    {"name": NAMES, "version": VERSIONS, "source": st.just("d.npz"), "sha256": DIGESTS}
)
_MARKS = st.dictionaries(
    st.sampled_from(["xfail", "skip"]), st.dictionaries(NAMES, TEXTS, max_size=2), max_size=2
)
_SECTIONS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "version": VERSIONS,
        "task": NAMES,
        "inputs": _images().map(lambda image: [image]),
        "dataset": _DATASETS,
        "evaluate": _EVALUATE,
        "thresholds": _thresholds(),
        "marks": _MARKS,
    },
    optional={
        "description": TEXTS,
        "license": TEXTS,
        "references": st.lists(TEXTS, max_size=2),
    },
)


def manifests() -> Strategy:
    """Return valid manifests, as plain values."""
    return _SECTIONS.map(lambda sections: small(**sections))


_JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({"a": [1]}),
)


@st.composite
def mutated_manifests(draw: st.DrawFn) -> object:
    """Return manifests with something removed, renamed or replaced by another type, anywhere."""
    content = json.loads(json.dumps(draw(manifests())))
    parent: Any = content
    while True:
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        if not keys:
            return content
        key = draw(st.sampled_from(keys))
        goes_deeper = isinstance(parent[key], (dict, list)) and parent[key]
        if not goes_deeper or not draw(st.booleans()):
            _mutate(draw, parent, key)
            return content
        parent = parent[key]


def _mutate(draw: st.DrawFn, parent: Any, key: Any) -> None:
    action = draw(st.sampled_from(["replace", "remove", "rename"]))
    if action == "replace" or isinstance(parent, list):
        parent[key] = draw(_JUNK)
        return
    value = parent.pop(key)
    if action == "rename":
        parent[draw(st.text(max_size=5))] = value
