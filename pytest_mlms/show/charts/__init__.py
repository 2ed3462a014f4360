"""Charts as static SVG: no script, no network, a tooltip for each mark."""
