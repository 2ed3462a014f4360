"""The layers of a model, and the operations and bytes that they cost."""
