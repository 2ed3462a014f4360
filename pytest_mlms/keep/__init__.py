"""What is kept: results of a run, its history, locks of what is promised."""
