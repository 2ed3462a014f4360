"""Load as MLPerf's LoadGen defines it: arrivals, samples, early stopping and verdicts."""
