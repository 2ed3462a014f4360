"""The structure of models, and the operations and bytes that they cost."""
