"""The lines of a run's results: their record, their reading, their identity."""
