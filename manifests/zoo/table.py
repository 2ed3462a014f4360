"""Write the table of manifests/README.md from the last run.

Called as ``python -m manifests.zoo.table [RESULTS]``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.manifest.load import LoadedManifest, load
from pytest_mlms.provide.artifacts.fetch import default_cache, fetch

__all__ = ["HEAD", "row_of"]

HEAD = (
    "| model | task | licence | size | measured | frameworks |",
    "|---|---|---|---:|---|---|",
)
_MANIFESTS = Path(__file__).parents[1]
_README = _MANIFESTS / "README.md"
_BLOCK = re.compile(re.escape(HEAD[0]) + r"\n(\|.*\n)*")
_SHOWN = 2  # quantities of a model, of those that it limits


def main() -> None:
    """Write the rows of all models; those without a result keep the one they have."""
    results = Path(sys.argv[1] if len(sys.argv) > 1 else "mlms-results/latest")
    measured = _accuracies(results / "results.jsonl")
    text = _README.read_text(encoding="utf-8")
    former = _former_rows(text)
    rows = list(HEAD)
    for path in manifests():
        loaded = load(path)
        link = _link(path, loaded)
        if loaded.manifest.name in measured:
            rows.append(row_of(path, loaded, measured[loaded.manifest.name]))
        elif link in former:
            rows.append(former[link])
    _README.write_text(_BLOCK.sub("\n".join(rows) + "\n", text), encoding="utf-8")


def _former_rows(text: str) -> dict[str, str]:
    """Return the rows of tables by their first cell."""
    rows = {}
    for line in text.splitlines():
        if line.startswith("|"):
            first = line.split("|")[1].strip()
            rows[first] = line
    return rows


def manifests() -> Iterator[Path]:
    """Yield the manifests of the zoo."""
    yield from sorted(_MANIFESTS.glob("*/*.yaml"))


def _accuracies(results: Path) -> dict[str, Mapping[str, Any]]:
    """Return the estimates of accuracy of each model, by the first framework that has any."""
    found: dict[str, Mapping[str, Any]] = {}
    for line in results.read_text().splitlines():
        item = json.loads(line)
        if item.get("kind") == "accuracy" and item.get("estimates"):
            found.setdefault(item["manifest"]["name"], item["estimates"])
    return found


def row_of(path: Path, loaded: LoadedManifest, estimates: Mapping[str, Any]) -> str:
    """Return the row of a model; its files are in the cache, or are fetched."""
    manifest = loaded.manifest
    limited = {limit.quantity for limit in loaded.limits("accuracy")}
    names = [name for name in estimates if name in limited]
    measured = [_shown(name, estimates[name]) for name in names[:_SHOWN]]
    frameworks = [model.name for model in manifest.models]
    cells = (
        _link(path, loaded),
        manifest.task,
        manifest.license,
        f"{_size_of_model(loaded) / 1e6:.1f} MB",
        ", ".join(measured),
        ", ".join(frameworks),
    )
    return f"| {' | '.join(map(str, cells))} |"


def _size_of_model(loaded: LoadedManifest) -> int:
    """Return the bytes of the files of a manifest's first model."""
    size = 0
    for artifact in loaded.model_files(loaded.manifest.models[0]).values():
        size += _size(fetch(artifact, default_cache()))
    return size


def _link(path: Path, loaded: LoadedManifest) -> str:
    return f"[{loaded.manifest.name}]({path.parent.name}/{path.name})"


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def _shown(name: str, estimate: Mapping[str, Any]) -> str:
    bounds = f"{estimate['low']:.3g} to {estimate['high']:.3g}"
    return f"{name} {estimate['value']:.3g} ({bounds})"


if __name__ == "__main__":
    main()
