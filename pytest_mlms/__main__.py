"""``python -m pytest_mlms``: the ``mlms`` command."""

import sys

from pytest_mlms.cli.main import main

sys.exit(main())
