"""``mlms schema``: the JSON Schema of manifests, for editors."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pytest_mlms.manifest import Manifest

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def add_schema(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("schema", help="print the JSON Schema of a manifest, for editors")
    parser.set_defaults(run=_print_schema)


def _print_schema(options: argparse.Namespace) -> int:
    schema = {"$schema": _DIALECT, **Manifest.model_json_schema()}
    print(json.dumps(schema, indent=2))
    return 0
