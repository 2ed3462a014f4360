"""Manifests as pytest items: their collection, fixtures and test functions."""
