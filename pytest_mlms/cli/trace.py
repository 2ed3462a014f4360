"""``mlms analyze`` and ``mlms export``: what can be asked of the traces of a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pytest_mlms.errors import MlmsError
from pytest_mlms.report.trace_query import (
    FORMATS,
    analysis_of,
    listing,
    reasons,
    render,
    subjects_of,
    traces_of,
)

__all__ = ["add_trace_commands"]


def add_trace_commands(commands: Any) -> None:
    """Add the commands to the parser's commands."""
    kinds = "kinds of analysis, with XSP's number:\n" + "\n".join(f"  {line}" for line in listing())
    raw = argparse.RawDescriptionHelpFormatter
    analyze = commands.add_parser(
        "analyze", help="ask a run's traces", formatter_class=raw, epilog=kinds
    )
    analyze.add_argument("path", type=Path, metavar="RUN", help="folder of a run, or a trace.npz")
    analyze.add_argument(
        "--kind", required=True, metavar="KIND", help="one of those below, by name or number"
    )
    analyze.add_argument("--format", choices=FORMATS, default="table")
    analyze.add_argument(
        "-k", dest="chosen", default="", metavar="TEXT", help="only what has this in model or case"
    )
    analyze.set_defaults(run=_analyze)
    export = commands.add_parser("export", help="write a run's traces as OTLP/JSON, one file each")
    export.add_argument("path", type=Path, metavar="RUN", help="folder of a run, or a trace.npz")
    export.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    export.set_defaults(run=_export)


def _analyze(options: argparse.Namespace) -> int:
    analysis = analysis_of(options.kind)
    subjects = subjects_of(options.path, options.chosen)
    table = analysis.table(subjects)
    print(render(table, options.format))
    if not table.rows:
        print("\n".join(reasons(subjects)), file=sys.stderr)
    return 0


def _export(options: argparse.Namespace) -> int:
    from pytest_mlms.trace.exporters.otlp import write_otlp
    from pytest_mlms.trace.spans import load_trace

    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MlmsError(
            f"{options.folder} can't be a folder: {error.strerror}; name another"
        ) from error
    for path in traces_of(options.path):
        target = options.folder / f"{path.parent.name}.otlp.json"
        count = write_otlp(load_trace(path), target, path.parent.name)
        print(f"{target}: {count:,} spans")
    return 0
