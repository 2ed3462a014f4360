"""Items whose model is on a server that generates: measured, judged, compared."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import pytest

from tests.support import llamas, token_server
from tests.support.project import ROOT, Project, sha256

PROMPTS = ["Once upon a time", "The sea is", "A proof of it"]


def documented() -> str:
    """Return the manifest of docs/servers.md for a model that generates."""
    text = (ROOT / "docs" / "servers.md").read_text()
    found = re.search(r"```yaml\n(name: .*?)```", text, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def served(project: Project) -> Project:
    """A project with the documents' manifest, its prompts, and a file that stands for the model."""
    np.savez(project.folder / "prompts.npz", prompt=np.array(PROMPTS), limit=np.full(3, 20))
    (project.folder / "llama.gguf").write_bytes(b"x")
    text = documented()
    for name in ("llama.gguf", "prompts.npz"):
        digest = sha256((project.folder / name).read_bytes())
        text = re.sub(rf"({name}, sha256: )\w*…", rf"\g<1>{digest}", text)
    project.manifest.write_text(text)
    return project


def declare(project: Project, **stacks: list[str]) -> None:
    """Declare stacks whose server a command starts."""
    entries: dict[str, Any] = {}
    for name, command in stacks.items():
        serve = {"command": command, "timeout": "600 s"}
        entries[name] = {"framework": "openai", "serve": serve, "options": {"tokens": "ids"}}
        entries[name]["env"] = {"SIDE": name}  # or both would be the same
    (project.folder / "stacks.yaml").write_text(json.dumps(entries))


def server(port: str = "port", **facts: Any) -> list[str]:
    facts = {"first": 0.02, "each": 0.01, **facts}
    words = ["env", f"PYTHONPATH={ROOT}", sys.executable, token_server.__file__]
    return [*words, f"{{{port}}}", json.dumps(facts)]


def test_the_manifest_of_the_documents_measures_the_tokens_of_a_server(served: Project) -> None:
    declare(served, new=server())
    served.run("--mlms-stack=new", "--mlms-duration=0.5", "-k", "performance")
    (item,) = served.items()
    assert {limit["verdict"] for limit in item["limits"]} == {"PASSED"}, item["limits"]
    estimates = {name: found["value"] for name, found in item["estimates"].items()}
    assert 0.02 < estimates["ttft"] < estimates["latency_mean"]
    assert estimates["tpot"] > 0.005
    assert estimates["output_rate"] < 100
    assert item["device_facts"]["tokens"].startswith("ids of tokens")


def test_labels_are_not_compared_with_texts(served: Project) -> None:
    path = served.folder / "prompts.npz"
    labels = np.zeros((3, 20), int)
    np.savez(path, prompt=np.array(PROMPTS), limit=np.full(3, 20), label=labels)
    text = served.manifest.read_text()
    digest = sha256(path.read_bytes())
    served.manifest.write_text(re.sub(r"(prompts.npz, sha256: )\w*", rf"\g<1>{digest}", text))
    declare(served, new=server())
    stacks = served.folder / "stacks.yaml"
    stacks.write_text(stacks.read_text().replace('"ids"', '"chunks"'))
    result = served.run("--mlms-stack=new", "-k", "accuracy")
    result.stdout.fnmatch_lines("*labels are ids of tokens, and the server tells only their texts*")


def compared(project: Project, *options: str) -> dict[str, Any]:
    """Return the item of an upgrade of the stack old to the stack new."""
    project.run("--mlms-stack=new", "--mlms-against=old", "--mlms-duration=1", *options)
    (item,) = project.items()
    return item


@pytest.mark.slow
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"fault": "500", "every": 100}, "was answered 500 Internal Server Error: out of memory"),
        ({"fault": "dropped"}, "usage has 20 tokens, and 19 tokens came"),
    ],
)
def test_an_upgrade_to_a_server_with_a_fault_is_regressed(
    served: Project, facts: dict[str, Any], expected: str
) -> None:
    declare(served, old=server(each=1e-3), new=server(each=1e-3, **facts))
    item = compared(served)
    assert item["verdict"] == "REGRESSED"
    assert expected in json.dumps(item)


@pytest.mark.slow
def test_ids_of_tokens_are_not_compared_with_texts(served: Project) -> None:
    """As of another engine: all tokens would differ, and the upgrade be REGRESSED."""
    declare(served, old=server(each=1e-3), new=server(each=1e-3))
    stacks = served.folder / "stacks.yaml"
    stacks.write_text(stacks.read_text().replace('"ids"', '"chunks"', 1))
    item = compared(served)
    assert item["verdict"] == "INVALID"
    assert "new tells ids of tokens, and baseline old only their texts" in json.dumps(item)


@pytest.mark.slow
def test_a_server_of_llama_cpp_is_measured_and_compared(served: Project) -> None:
    """A server that others wrote, of a model whose weights are drawn."""
    path = llamas.write_llama(served.folder / "llama.gguf")
    served.edit(sha256(b"x"), sha256(path.read_bytes()))
    command = ["python", llamas.__file__, "{port}", "{graph}"]
    stack = {
        "framework": "openai",
        "requirements": ["xllamacpp==2026.10.11549", "numpy"],
        "serve": {"command": command, "ready": "/health", "timeout": "600 s"},
        "options": {"tokens": "logprobs", "request.cache_prompt": False},
    }
    more = {**stack, "env": {"NOTHING": "1"}}
    (served.folder / "stacks.yaml").write_text(json.dumps({"old": stack, "new": more}))
    item = compared(served, "--mlms-cache=cache")
    found = {each["quantity"]: each["verdict"] for each in item["comparisons"]}
    assert {"ttft", "tpot", "itl", "output_rate", "agreement", "start_time"} <= found.keys()
    assert "REGRESSED" not in found.values()
