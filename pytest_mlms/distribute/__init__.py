"""Items over the workers of pytest-xdist: who can run what, one measurement at a time on a device,
results back whole.

Only this package imports xdist and execnet, and only in a run that distributes manifests.
"""
