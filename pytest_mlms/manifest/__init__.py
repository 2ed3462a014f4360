"""Manifests: their form, and how a file becomes one."""

from pytest_mlms.manifest.load import Loaded, find_manifests, load
from pytest_mlms.manifest.schema import Manifest

__all__ = ["Loaded", "Manifest", "find_manifests", "load"]
