"""Decisions: which limits and gates judge an item, and the verdict on an upgrade."""
