"""Evaluation of manifests from Python, by a session of pytest, and the reading of its results."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

from pytest_mlms.core.child_session import ChildOptions, run_child
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.units import parse_share
from pytest_mlms.decide.upgrade.replay import read_upgrades, replay_upgrade
from pytest_mlms.keep.results import results_reader
from pytest_mlms.keep.results.results_reader import ItemLines
from pytest_mlms.project import find_project
from pytest_mlms.provide.artifacts.fetch import default_cache

_QUIET = ("-q", "--no-header", "-p", "no:cacheprovider")
_SHOWN_LINES = 12
_ENDED = (0, 1)  # pytest's exit statuses of runs to the end


def evaluate(
    manifest: str | Path,
    *options: str,
    stack: str | None = None,
    results: str | Path = "mlms-results",
) -> list[dict[str, Any]]:
    """Run the items of a manifest by pytest; return the line of each as plain values.

    ``options`` are pytest's, such as ``"-k", "accuracy"``, ``stack`` is as of --mlms-stack, and
    ``results`` the folder that the run's folder is made in. docs/results.md has the fields.
    Raises MlmsError, with pytest's last lines, where it finished no item, or did not come to its
    end. An item that broke a limit raises nothing: its ``verdict`` says so.
    """
    path = Path(manifest)
    if not path.is_file():
        raise MlmsError(f"there is no manifest {path}; name a .yaml file")
    cache = find_project([path]).value("cache") or default_cache()
    marker = f"mlms-evaluation-{uuid.uuid4().hex}"
    arguments = [str(path), f"--mlms-manifests={path}", f"--deselect={marker}", *_QUIET, *options]
    if stack is not None:
        arguments.append(f"--mlms-stack={stack}")
    with tempfile.TemporaryFile(prefix="mlms-evaluation-") as output:
        done = run_child(arguments, ChildOptions(Path(results), cache), marker, output)
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    items = read_results(done.run) if done.run is not None else []
    if not items or done.status not in _ENDED:
        shown = "\n  ".join(lines[-_SHOWN_LINES:])
        found = f"pytest ended with status {done.status} (finished items: {len(items)})"
        raise MlmsError(f"{found}:\n  {shown}")
    return items


def read_results(path: str | Path) -> list[dict[str, Any]]:
    """Return the items of a run, in the order in which they finished, as plain values.

    ``path`` is its folder, or its results.jsonl. Of an item that ran again the last line counts.
    Raises MlmsError where there are no such results.
    """
    file = _results_file(Path(path))
    if not file.is_file():
        raise MlmsError(f"there is no {file}; name a run's folder, or its results.jsonl")
    return list(ItemLines.of(results_reader.read_results(file)).lines.values())


def judge(results: str | Path, tolerance: str | float | None = None) -> dict[str, str]:
    """Decide a run's upgrades again; return the verdict of each by its node id.

    ``tolerance`` is the share by which the candidate may be slower, such as 0.02 or "250 %", and
    None leaves each as it was. Nothing is measured. Raises MlmsError where there are no upgrades,
    and for a tolerance that is no share.
    """
    try:
        share = None if tolerance is None else parse_share(tolerance)
    except ValueError as error:
        raise MlmsError(f"tolerance: {error}") from None
    folder, upgrades = read_upgrades(Path(results))
    verdicts = {}
    for upgrade in upgrades:
        verdicts[upgrade.nodeid] = replay_upgrade(folder, upgrade, share, None).verdict.value
    return verdicts


def _results_file(path: Path) -> Path:
    return path / "results.jsonl" if path.is_dir() else path
