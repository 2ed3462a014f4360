"""500 clients of a portal for a minute, of whom half are slow, hostile or gone.

Run it as ``PYTHONPATH=. python ci/crowd.py [CLIENTS SECONDS]``. It ends with 1 where an honest
client wasn't served, a run was lost, or the portal took more memory than 1 GiB.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

from tests.support.crowds import Crowd
from tests.support.portals import serving

_MOST_BYTES = 1 << 30


def main() -> int:
    """Run the crowd; print what was seen."""
    clients, seconds = map(int, sys.argv[1:3] or ("500", "60"))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results")
        results.mkdir()
        with serving(results, f"--history={folder}/history.sqlite") as portal:
            crowd = Crowd(portal, clients, seconds)
            seen = crowd.run()
            missing = crowd.missing(results)
            status, _, errors = portal.end()
    print(f"{clients} clients for {seconds} s\n{seen}\nlost runs: {missing}")
    print(f"the portal ended with {status} {errors}")
    is_good = not (seen.failures or missing or status) and seen.peak_bytes < _MOST_BYTES
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
