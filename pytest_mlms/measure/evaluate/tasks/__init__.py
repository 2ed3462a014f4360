"""The tasks of machine learning that accuracy is measured for; each is one file."""
