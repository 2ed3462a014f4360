"""Search for the mistakes of pre-processing: variants of a manifest's inputs, and their scores."""
