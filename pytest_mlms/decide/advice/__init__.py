"""Advice on a configuration: the search for the best candidate under limits."""
