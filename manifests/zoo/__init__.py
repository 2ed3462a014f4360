"""The programs of the zoo: they compose its data, write its table, and break two of its models."""
