"""Explanations of a verdict: which release, which part of a model, on whose machine."""
