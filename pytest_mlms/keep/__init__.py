"""Records that last: results of a run, its history, locks of what is promised."""
