"""The command ``mlms schema``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.manifest import yaml12
from tests.support.project import DIGITS

jsonschema: Any = pytest.importorskip("jsonschema")


def test_the_schema_is_a_json_schema_that_manifests_meet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    manifest = yaml12.parse((DIGITS / "digits.yaml").read_text())
    jsonschema.validate(manifest.value, schema)
