"""pytest-mlms: tests of machine-learning models on software stacks and devices."""

__version__ = "0.1.0"
