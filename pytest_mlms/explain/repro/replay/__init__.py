"""The part of a bundle that ``python repro.zip`` runs before its own pytest-mlms is installed.

It uses the standard library alone, and imports nothing of ``pytest_mlms``. It is written for Python
3.6, so that an old one says which it needs.
"""
