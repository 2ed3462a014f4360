"""The upgrade gate: two stacks measured in turns, compared and judged."""
