"""Measurement: agents, inputs, load, latency, accuracy, traces, structure."""
