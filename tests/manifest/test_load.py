"""The schema, and files to manifests or to all of their faults."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.errors import ManifestError
from pytest_mlms.manifest import Manifest, load, yaml12
from pytest_mlms.manifest.thresholds import Thresholds
from pytest_mlms.quantities import QUANTITIES
from tests.support.project import DIGITS, MANIFEST

DIGEST = "0123456789abcdef" * 4
SMALL: dict[str, Any] = {
    "name": "small",
    "version": "1.0.0",
    "task": "image-classification",
    "models": [{"framework": "onnxruntime >=1.17", "graph": "model.onnx", "sha256": DIGEST}],
    "inputs": [{"name": "x", "type": "tensor", "element_type": "float32"}],
    "outputs": [{"name": "y", "type": "classification"}],
}


def written(folder: Path, content: object) -> Path:
    path = folder / "m.yaml"
    path.write_text(
        content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    )
    return path


def faults(folder: Path, content: object) -> list[str]:
    with pytest.raises(ManifestError) as raised:
        load(written(folder, content), ["onnxruntime", "mxnet"])
    return str(raised.value).splitlines()


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SMALL), **changes}


def test_the_shipped_manifest_is_valid_and_knows_its_lines() -> None:
    loaded = load(DIGITS / "digits.yaml")
    limits = {limit.quantity: limit for limit in loaded.limits("performance")}
    line = (DIGITS / "digits.yaml").read_text().splitlines()[limits["latency_p50"].place.line - 1]
    assert "latency_p50" in line


def test_every_fault_of_a_file_is_reported_at_once_with_its_line(tmp_path: Path) -> None:
    text = MANIFEST.read_text()
    for old, new in {
        "version: 1.0.0\ntask": "version: 1.0\ntask",
        "onnxruntime >=1.17": "onnxrntime >=1.17",
        "float32": "fp32",
        "softmax,": "sofmax,",
        "5 ms": "5",
        "seed: 7": "seed: 7\n  seed: 8",
        "d68566f63": "d68566f6",
        "{max: 256 MiB}": "{min: 256 MiB}",
    }.items():
        assert old in text
        text = text.replace(old, new)
    found = faults(tmp_path, text)
    path = tmp_path / "m.yaml"
    assert [line.removeprefix(f"{path}:") for line in found] == [
        "2: version: found 1.0; write a semantic version, as in 1.0.0",
        "9: models[0].framework: no predictor for 'onnxrntime'; did you mean 'onnxruntime'? (--mlms-predictors DIR adds others)",
        "11: models[0].sha256: found '237cb7d43b2c3390032ae68b3c9f9d5f570a7620e6614908a597254d68566f6'; write 64 hexadecimal digits, as sha256sum prints",
        "16: inputs[0].element_type: 'fp32' is not known; write one of float16, float32, float64, int8, int16, int32, int64, uint8, bool",
        "25: outputs[0].steps[0]: unknown key 'sofmax'; did you mean 'softmax'?",
        "40: has the key 'seed' again, first on line 39; keep one",
        "45: thresholds.latency_p90.max: 5 has no unit; write one of ns, us, µs, ms, s, min, as in '5 ns'",
        "47: thresholds.peak_memory: 'max' is missing; write 'max: …'",
        "47: thresholds.peak_memory: unknown key 'min'; write one of batch_sizes, devices, frameworks, max, scenarios",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", ":1: is empty; a manifest begins with 'name: …'"),
        ("- a\n", ":1: holds a list, not keys and values"),
        ("digits\n", ":1: holds one value, not keys and values"),
        (b"\xff\xfe\x00", ":1: is not UTF-8"),
        ("x" * (1 << 20) + "yy", ":1: is larger than 1024 KiB"),
    ],
)
def test_a_file_that_can_not_be_a_manifest_says_why(
    tmp_path: Path, content: str | bytes, says: str
) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ManifestError, match=says.replace("(", r"\(")):
        load(path)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        ManifestError, match="can't be read: No such file or directory; check the path"
    ):
        load(tmp_path / "none.yaml")


IMAGE = {"name": "x", "type": "image", "element_type": "float32", "layout": "NCHW"}
MODEL = SMALL["models"][0]
DATASET = {"name": "d", "version": "1.0.0", "source": "d.npz", "sha256": DIGEST}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"models": [MODEL, MODEL]}, "models has 'onnxruntime' twice"),
        (
            {"models": [{**MODEL, "weights": "w"}]},
            "sha256 is for ['graph']; write one for each of ['graph', 'weights']",
        ),
        (
            {"models": [{**MODEL, "framework": "onnxruntime 1.17"}]},
            "'1.17' are not versions; write them as in '>=1.17'",
        ),
        (
            {"models": [{**MODEL, "framework": ">=1.17"}]},
            "is not a framework; write its name and versions",
        ),
        (
            {"models": [{**MODEL, "graph": "s3://bucket/x"}]},
            "can't fetch s3://; write a relative path",
        ),
        ({"models": []}, "models: is empty; write at least 1"),
        ({"models": {}}, "models: found a mapping; write a list, '- …' for each"),
        ({"inputs": [{**IMAGE, "layout": None}]}, "an image needs a layout"),
        (
            {"inputs": [{**IMAGE, "type": "tensor", "steps": [{"resize": {"size": [8, 8]}}]}]},
            "a tensor has no step 'resize'",
        ),
        (
            {
                "inputs": [
                    {**IMAGE, "steps": [{"layout": {"to": "NCHW"}}, {"crop": {"size": [4, 4]}}]}
                ]
            },
            "move 'layout' behind it",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [{"crop": {"size": [4, 4]}}, "decode"]}]},
            "move it to the front",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [{"crop": {"size": [4, 4]}, "cast": {"to": "int8"}}]}]},
            "a step has one name, this one has 2",
        ),
        ({"inputs": [{**IMAGE, "steps": [{"normalize": {"scale": [1, 0]}}]}]}, "scale is 0"),
        (
            {"inputs": [{**IMAGE, "steps": [{"resize": {"size": [4]}}]}]},
            "inputs[0].steps[0].resize.size",
        ),
        (
            {
                "outputs": [
                    {"name": "y", "type": "classification", "steps": [{"top_k": {}}, "softmax"]}
                ]
            },
            "move it to the end",
        ),
        (
            {"outputs": [{"name": "y", "type": "tensor", "steps": ["top_k"]}]},
            "a tensor has no step 'top_k'",
        ),
        (
            {
                "outputs": [
                    {
                        "name": "y",
                        "type": "classification",
                        "steps": [{"top_k": {"labels": "https://x/l"}}],
                    }
                ]
            },
            "labels that are fetched need a digest",
        ),
        ({"evaluate": {"batch_sizes": [1, 1]}}, "1 is there twice; keep one"),
        ({"evaluate": {"batch_sizes": [0]}}, "found 0; write greater than or equal to 1"),
        ({"evaluate": {"devices": ["gpu"]}}, "found 'gpu'; write cpu, cuda or cuda:N"),
        (
            {"evaluate": {"scenarios": ["server"]}},
            "'server' is not known; write one of single_stream, offline",
        ),
        ({"thresholds": {"top1": {"min": 0.9}}}, "top1 judges nothing; add a dataset"),
        (
            {"thresholds": {"latency_p50": {"max": "1 s", "batch_sizes": [3]}}},
            "latency_p50 names batch_sizes that nothing",
        ),
        (
            {
                "thresholds": {
                    "throughput": [{"min": "1 /s"}, {"min": "2 /s", "frameworks": ["mxnet"]}]
                }
            },
            "names frameworks that nothing",
        ),
        ({"marks": {"xfial": {}}}, "'xfial' is not known; did you mean 'xfail'?"),
        ({"version": "1.0"}, "found '1.0'; write a semantic version"),
        (
            {"dataset": {**DATASET, "sha256": None}},
            "dataset.sha256: found nothing; write 64 hexadecimal digits",
        ),
    ],
)
def test_what_does_not_fit_together_says_what_to_write(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    found = faults(tmp_path, changed(**changes))
    assert any(says in line for line in found), found


def test_a_limit_may_be_one_or_a_list_for_different_cases(tmp_path: Path) -> None:
    limits = [{"max": "1 ms", "batch_sizes": [1]}, {"max": "9 ms", "batch_sizes": [8]}]
    content = changed(
        evaluate={"batch_sizes": [1, 8]},
        thresholds={"latency_p90": limits, "throughput": {"min": "1 /s"}},
    )
    loaded = load(written(tmp_path, content))
    assert [
        (limit.quantity, limit.value, limit.batch_sizes) for limit in loaded.limits("performance")
    ] == [
        ("latency_p90", 0.001, (1,)),
        ("latency_p90", 0.009, (8,)),
        ("throughput", 1, ()),
    ]


def test_an_agreement_is_a_limit_on_the_deviation_and_on_what_else_it_names(tmp_path: Path) -> None:
    entries = [
        {"reference": "onnxruntime", "rtol": 0.01, "devices": ["cuda"]},
        {
            "reference": "onnxruntime",
            "top1": {"min": "99 %"},
            "kl": {"max": 1e-6},
            "devices": ["cpu"],
        },
    ]
    content = changed(evaluate={"devices": ["cpu", "cuda"]}, thresholds={"agreement": entries})
    loaded = load(written(tmp_path, content))
    assert [
        (limit.quantity, limit.value, limit.devices) for limit in loaded.limits("agreement")
    ] == [
        ("deviation", 1, ("cuda",)),
        ("deviation", 1, ("cpu",)),
        ("same_top1", 0.99, ("cpu",)),
        ("kl_max", 1e-6, ("cpu",)),
    ]


TENSOR = {"outputs": [{"name": "y", "type": "tensor"}]}


@pytest.mark.parametrize(
    ("entries", "others", "says"),
    [
        (
            {"reference": "mxnet"},
            {},
            "the reference 'mxnet' has no model here; write one of onnxruntime",
        ),
        ({"rtol": 1e-4}, {}, "'reference' is missing; write 'reference: …'"),
        ({"reference": "onnxruntime", "rtol": -1}, {}, "found -1; write a number, 0 or more"),
        ({"reference": "onnxruntime", "max_kl": 1}, {}, "unknown key 'max_kl'; "),
        (
            {"reference": "onnxruntime", "js": {"max": 1}},
            TENSOR,
            "js judges nothing; add an output of type",
        ),
        (
            {"reference": "onnxruntime", "devices": ["cuda"]},
            {},
            "agreement names devices that nothing is evaluated",
        ),
        (
            [{"reference": "onnxruntime"}] * 2,
            {},
            "onnxruntime on cpu has an agreement already; name other frameworks",
        ),
    ],
)
def test_an_agreement_that_can_not_be_judged_says_why(
    tmp_path: Path, entries: Any, others: Any, says: str
) -> None:
    found = faults(tmp_path, changed(thresholds={"agreement": entries}, **others))
    assert len(found) == 1
    assert says in found[0]


def test_every_quantity_can_have_a_limit_on_its_side() -> None:
    own = {
        quantity.limit_key: quantity
        for quantity in QUANTITIES.values()
        if quantity.limit_key and quantity.kind != "agreement"
    }
    assert set(Thresholds.model_fields) == {*own, "agreement", "upgrade"}
    for name, quantity in own.items():
        text = {"fraction": "50 %", "s": "1 ms", "B": "1 MiB", "/s": "1 /s"}[quantity.unit]
        assert getattr(Thresholds.model_validate({name: {quantity.bound: text}}), name)


def test_relative_file_and_http_sources_become_artifacts(tmp_path: Path) -> None:
    models = [
        {"framework": "onnxruntime", "graph": "../a b/model.onnx", "sha256": DIGEST},
        {
            "framework": "mxnet",
            "graph": (tmp_path / "x.zip").as_uri() + "#in/x.json",
            "weights": "https://h/w.params",
        },
    ]
    models[1]["sha256"] = {"graph": DIGEST, "weights": DIGEST}  # type: ignore[assignment]
    loaded = load(
        written(
            tmp_path / "sub" if (tmp_path / "sub").mkdir() is None else tmp_path,
            changed(models=models),
        )
    )
    first, second = (loaded.model_files(model) for model in loaded.manifest.models)
    assert first["graph"].source == str(tmp_path / "a b" / "model.onnx")
    assert (second["graph"].source, second["graph"].member) == (
        str(tmp_path / "x.zip"),
        "in/x.json",
    )
    assert second["weights"].source == "https://h/w.params"


def test_the_json_schema_takes_the_shipped_manifest_and_refuses_an_unknown_key() -> None:
    schema = Manifest.model_json_schema()
    content = yaml12.parse((DIGITS / "digits.yaml").read_text()).value
    jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "thresholdz": {}}, schema)


names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,8}\Z")
versions = st.tuples(*[st.integers(0, 99)] * 3).map(lambda parts: ".".join(map(str, parts)))
digests = st.from_regex(r"\A[0-9a-f]{64}\Z")
texts = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=10)
sizes = st.lists(st.integers(1, 512), min_size=2, max_size=2)
per_channel = st.floats(0.5, 100) | st.lists(st.floats(0.5, 100), min_size=1, max_size=3)
image_steps = st.sampled_from(
    [
        {"resize": {"size": [8, 8], "method": "lanczos", "keep_aspect_ratio": True}},
        {"crop": {"size": [4, 4]}},
        {"color_order": {"to": "BGR"}},
        {"cast": {"to": "float16"}},
    ]
) | per_channel.map(lambda scale: {"normalize": {"mean": 0.5, "scale": scale}})
decode = st.sampled_from([[], ["decode"], [{"decode": {"color": "L"}}]])
images = st.builds(
    lambda first, steps, layout: {**IMAGE, "layout": layout, "steps": [*first, *steps]},
    decode,
    st.lists(image_steps, max_size=4),
    st.sampled_from(["NCHW", "NHWC"]),
)
quantities = {
    "fraction": st.floats(0, 1) | st.integers(0, 100).map(lambda share: f"{share} %"),
    "s": st.floats(0, 1e6).map(lambda number: f"{number!r} ms"),
    "B": st.integers(0, 10**6).map(lambda number: f"{number} MiB"),
    "/s": st.floats(0, 1e9).map(lambda number: f"{number!r}/s"),
}
agreements = st.fixed_dictionaries(
    {"reference": st.just("onnxruntime")},
    optional={
        "rtol": st.floats(0, 1),
        "atol": st.floats(0, 1e9),
        "top1": st.fixed_dictionaries({"min": quantities["fraction"]}),
        **{
            name: st.fixed_dictionaries({"max": st.floats(0, 100)})
            for name in ("kl", "js", "hellinger")
        },
    },
)
thresholds = st.fixed_dictionaries(
    {},
    optional={
        name: st.fixed_dictionaries({what.bound: quantities[what.unit]})
        | st.lists(
            st.fixed_dictionaries({what.bound: quantities[what.unit], "devices": st.just(["cpu"])}),
            max_size=2,
        )
        for name, what in QUANTITIES.items()
        if what.limit_key and what.kind != "agreement"
    }
    | {"agreement": agreements},
)
evaluates = st.fixed_dictionaries(
    {},
    optional={
        "devices": st.just(["cpu", "cuda:1"]),
        "batch_sizes": st.lists(st.integers(1, 999), min_size=1, max_size=4, unique=True),
        "scenarios": st.just(["offline", "single_stream"]),
        "seed": st.integers(0, 2**40),
    },
)
manifests = st.builds(
    lambda optional, **fields: {**SMALL, **optional, **fields},
    st.fixed_dictionaries(
        {},
        optional={
            "description": texts,
            "license": texts,
            "references": st.lists(texts, max_size=2),
        },
    ),
    name=names,
    version=versions,
    task=names,
    inputs=st.tuples(images).map(list),
    dataset=st.builds(
        lambda **fields: fields,
        name=names,
        version=versions,
        source=st.just("d.npz"),
        sha256=digests,
    ),
    evaluate=evaluates.map(lambda fields: {"devices": ["cpu"], **fields}),
    thresholds=thresholds,
    marks=st.dictionaries(
        st.sampled_from(["xfail", "skip"]), st.dictionaries(names, texts, max_size=2), max_size=2
    ),
)
VALIDATOR = jsonschema.Draft202012Validator(Manifest.model_json_schema())


@given(manifests)
def test_every_valid_manifest_comes_back_from_its_own_dump(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    first = load(written(tmp_path, json.dumps(content, ensure_ascii=False))).manifest
    again = load(
        written(
            tmp_path,
            json.dumps(first.model_dump(mode="json", exclude_none=True), ensure_ascii=False),
        )
    ).manifest
    assert again == first
    VALIDATOR.validate(content)


@st.composite
def mutated(draw: st.DrawFn) -> object:
    """A valid manifest with something removed, renamed, or replaced by a value of any type,
    anywhere in it.
    """
    content = json.loads(json.dumps(draw(manifests)))
    place: Any = content
    junk = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.just([])
        | st.just({"a": [1]})
    )
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return content
        key = draw(st.sampled_from(keys))
        if isinstance(place[key], (dict, list)) and place[key] and draw(st.booleans()):
            place = place[key]
            continue
        action = draw(st.sampled_from(["replace", "remove", "rename"]))
        if action == "replace" or isinstance(place, list):
            place[key] = draw(junk)
        else:
            value = place.pop(key)
            if action == "rename":
                place[draw(st.text(max_size=5))] = value
        return content


@given(mutated())
def test_no_mutated_manifest_gives_anything_but_a_clean_error(
    tmp_path: Path, content: object
) -> None:
    path = written(tmp_path, json.dumps(content, ensure_ascii=False))
    try:
        load(path, ["onnxruntime"])
    except ManifestError as error:
        for line in str(error).splitlines():
            assert line.startswith(f"{path}:1: "), line
            assert "; " in line, line


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda data: data.decode("latin-1")))
def test_no_text_at_all_gives_anything_but_a_clean_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ManifestError):
        load(written(tmp_path, text))
