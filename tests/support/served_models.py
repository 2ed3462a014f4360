"""A folder of manifests for a portal, with models that answer, wait or fail."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.support.project import PREDICTORS, copy_digits, sha256
from tests.support.used_models import write_box_model, write_sum_model, write_text_model

__all__ = ["write_faulty_model", "write_manifests"]


def write_manifests(folder: Path) -> Path:
    """Write manifests of digits, sums, texts and boxes; return their folder."""
    copy_digits(folder)
    (folder / "pytest.ini").write_text(f"[pytest]\nmlms_predictors = {PREDICTORS}\n")
    write_sum_model(folder).rename(folder / "sums.yaml")
    for name, write in (("text", write_text_model), ("boxes", write_box_model)):
        (folder / name).mkdir()
        write(folder / name)
    return folder


def write_faulty_model(folder: Path, name: str, **spec: object) -> Path:
    """Write a manifest of the faulty predictor into a folder of digits; return its path."""
    graph = json.dumps(spec).encode()
    (folder / f"{name}.json").write_bytes(graph)
    content = yaml.safe_load((folder / "digits.yaml").read_text())
    model = {"framework": "faulty", "graph": f"{name}.json", "sha256": sha256(graph)}
    content.update(name=name, models=[model])
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path
