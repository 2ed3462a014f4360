"""The host that runs items: its hardware, locks and capabilities."""
