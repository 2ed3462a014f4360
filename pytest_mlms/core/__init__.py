"""Foundations of every storey: records, units, statistics, files, errors, quantities."""
