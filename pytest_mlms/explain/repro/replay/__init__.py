"""The replay of a bundle: what ``python repro.zip`` runs on another machine.

It uses the standard library alone, from Python 3.6 on, and imports nothing of ``pytest_mlms``. The
environments of both sides run our agent and ``compare.py`` by path, which use numpy.
"""
