"""The framework-independent parts of an agent: channel, requests, scenarios, probes."""
