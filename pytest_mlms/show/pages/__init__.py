"""The HTML report: pages of views, as one file."""
