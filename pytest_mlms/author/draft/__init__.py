"""Drafts of manifests: what can be found out about a model by its files, its data and a run."""
