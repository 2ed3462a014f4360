"""A portal among clients of whom half are slow, hostile or gone serves the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.crowds import Crowd
from tests.support.portals import serving


@pytest.mark.slow
def test_a_crowd_half_of_which_is_hostile_keeps_nobody_from_the_portal(tmp_path: Path) -> None:
    """``ci/crowd.py`` has 500 clients for a minute."""
    (tmp_path / "results").mkdir()
    with serving(tmp_path / "results", f"--history={tmp_path / 'history.sqlite'}") as portal:
        crowd = Crowd(portal, clients=60, seconds=10)
        seen = crowd.run()
        assert seen.failures == [], str(seen)
        assert seen.pushed
        assert crowd.missing(tmp_path / "results") == []
        assert seen.peak_bytes < 512 << 20
        status, _, errors = portal.end()
    assert (status, errors) == (0, "")
