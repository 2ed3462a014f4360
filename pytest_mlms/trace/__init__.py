"""Where the time goes: spans and counters on one clock, who caused whom, and the files and tables
made of them.

Nothing here runs a model or judges a result: pytest_mlms.trace.runner asks agents for what these
modules work on.
"""

LEVELS = ("application", "model", "layer", "library", "kernel", "hardware")
"""Of a trace's spans, from the outermost to the innermost."""
