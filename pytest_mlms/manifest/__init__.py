"""Manifests: their form, and how a file becomes one."""

from pytest_mlms.manifest.load import LoadedManifest, find_manifests, load
from pytest_mlms.manifest.schema import Manifest

__all__ = ["LoadedManifest", "Manifest", "find_manifests", "load"]
