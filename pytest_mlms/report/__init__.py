"""What is written and shown of results; nothing here changes a verdict."""
