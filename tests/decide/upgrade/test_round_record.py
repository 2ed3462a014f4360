"""Records of a round."""

from __future__ import annotations

import json
from dataclasses import replace

from pytest_mlms.core.serialization import from_plain, to_plain
from pytest_mlms.decide.upgrade.round_record import RoundRecord
from tests.support.upgrades import ROUND_RECORD, changed


def test_a_record_comes_back_from_json_as_it_was() -> None:
    record = replace(ROUND_RECORD, figures={"latency": changed(0.1)})
    text = json.dumps(to_plain(record), allow_nan=False)
    assert from_plain(RoundRecord, json.loads(text)) == record


def test_the_keys_of_a_round_are_those_that_results_document() -> None:
    plain = to_plain(ROUND_RECORD)
    assert set(plain) == {
        "started_first",
        "cores",
        "pairs",
        "calls",
        "skipped",
        "calling_core",
        "warmup_pairs",
        "steady",
        "turns_exclusive",
        "seconds",
        "sides",
        "figures",
        "loads",
        "peaks",
        "started_together",
        "clock_step",
        "starts",
        "groups",
    }
    assert plain["sides"]["b"]["pid"] == 102
