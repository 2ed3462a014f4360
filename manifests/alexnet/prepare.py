"""Write AlexNet in every framework's format that can be made here, and a manifest of them.

    python manifests/alexnet/prepare.py FOLDER [STACKS.yaml]

The ONNX file is by make.py, the others by manifests/convert/to_*.py, each in its framework's stack
of manifests/stacks.yaml (or of another file like it), which is made where it isn't there yet. What
is there already is kept. A framework whose stack can't be had here is left out, and the reason is
printed.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1] / "convert"))

import make
import network
import onnx

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.declared import declared_stacks
from pytest_mlms.provide.stacks.launch import prepare

HERE = Path(__file__).parent
CONVERT = HERE.parent / "convert"
CONVERTED_IN = {
    "caffe": "caffe",
    "caffe2": "caffe2",
    "cntk": "cntk",
    "jax": "jax",
    "mxnet": "mxnet",
    "pytorch": "pytorch",
    "tensorflow": "tensorflow",
    "tflite": "tensorflow",
}
"""The stack that a framework's converter runs in; other frameworks take the ONNX file."""
TAKE_ONNX = ("onnxruntime", "openvino", "opencv")
OPTIONS = {"caffe2": {"inputs": f"image float32[?,3,{make.SIZE},{make.SIZE}]"}}
_HEAD = """\
name: alexnet
version: 1.0.0
task: image-classification
description: >-
  AlexNet's structure with weights from a seed, to measure speed by; made by
  manifests/alexnet/prepare.py.
references: [https://arxiv.org/abs/1404.5997]
models:
"""
_TAIL = """\
inputs:
  - {name: image, type: tensor, element_type: float32}
outputs:
  - {name: logits, type: classification, steps: [softmax]}
evaluate:
  batch_sizes: [1, 2, 4, 8, 16, 32, 64]
  threads: 1
  seed: 7
thresholds:
  agreement: {reference: onnxruntime, rtol: 1e-3, atol: 1e-4}
"""


def make_onnx(folder: Path) -> Path:
    """Return the path of NETWORK.npz, which is written last, beside the ONNX file."""
    target = folder / "alexnet.npz"
    if not target.exists():
        print("alexnet.onnx", flush=True)
        onnx.save(make.alexnet(), folder / "alexnet.onnx")
        temporary = folder / "unfinished.npz"
        network.save(network.read_onnx(folder / "alexnet.onnx"), temporary)
        temporary.replace(target)
    return target


def convert(framework: str, source: Path, stacks: Mapping[str, Stack]) -> dict[str, Any]:
    """Return the files of a framework by role, with their digests.

    Raises MlmsError where they can't be made.
    """
    done = source.with_name(f"{framework}.json")
    if not done.exists():
        print(f"converting for {framework}", flush=True)
        done.write_text(_run_converter(framework, source, stacks))
    return cast(dict[str, Any], json.loads(done.read_text()))


def _run_converter(framework: str, source: Path, stacks: Mapping[str, Stack]) -> str:
    """Return the last line that a converter prints: the files, as JSON."""
    name = CONVERTED_IN[framework]
    if name not in stacks:
        raise MlmsError(f"no stack {name} is declared")
    launch = prepare(stacks[name], default_cache())
    script = CONVERT / f"to_{framework}.py"
    ran = subprocess.run(
        [*launch.command, str(script), str(source), str(source.with_suffix(""))],
        env=dict(launch.env),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise MlmsError(f"its conversion failed:\n{ran.stderr[-2000:]}")
    return ran.stdout.splitlines()[-1]


def models(folder: Path, source: Path, stacks: Mapping[str, Stack]) -> Iterator[dict[str, Any]]:
    """Yield the manifest's entry of each framework that has its files."""
    path = folder / "alexnet.onnx"
    shared = {"graph": {"path": str(path), "sha256": network.sha256(path)}}
    for framework in TAKE_ONNX:
        yield _entry(framework, shared)
    for framework in CONVERTED_IN:
        try:
            files = convert(framework, source, stacks)
        except MlmsError as error:
            print(f"{framework} is left out: {error}", flush=True)
        else:
            yield _entry(framework, files)


def _entry(framework: str, files: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"framework": framework}
    for role, file in files.items():
        entry[role] = Path(file["path"]).name
    entry["sha256"] = {role: file["sha256"] for role, file in files.items()}
    entry["options"] = OPTIONS.get(framework, {})
    return entry


def main() -> None:
    """Write all of it; the manifest last."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stacks = HERE.parent / "stacks.yaml"
    if len(sys.argv) > 2:
        stacks = Path(sys.argv[2])
    shutil.copy(stacks, folder / "stacks.yaml")
    source = make_onnx(folder)
    manifest = _HEAD
    for entry in models(folder, source, declared_stacks(folder)):
        manifest += f"  - {json.dumps(entry)}\n"  # JSON is YAML too
    (folder / "alexnet.yaml").write_text(manifest + _TAIL)


if __name__ == "__main__":
    main()
