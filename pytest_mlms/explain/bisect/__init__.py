"""Bisection of a regression: the release, or the package, that made an upgrade worse."""
