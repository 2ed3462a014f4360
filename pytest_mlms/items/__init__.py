"""Manifests as pytest items."""
