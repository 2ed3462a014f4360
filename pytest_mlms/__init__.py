"""pytest-mlms: tests of machine-learning models on software stacks and devices.

PYTEST_DONT_REWRITE: nor does pytest warn of it where it was imported before pytest began.
"""

import sys

__version__ = "0.1.0"

# pytest rewrites the asserts of a plugin's modules: in an image, where it can't keep the result, at
# each start. Ours are for us, and their messages are written out.
for _finder in sys.meta_path:
    getattr(_finder, "_must_rewrite", set()).difference_update((__name__, "mlms_predictors"))
