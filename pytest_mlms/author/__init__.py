"""Manifests for their authors: drafts, checks, translations of other formats."""
