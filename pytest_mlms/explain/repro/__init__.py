"""Bundles by which others see a failure: a zip that replays it with just Python and pip."""
