"""The steps of ci/gpu, a module for each subject; ci/gpu.py has their table."""
