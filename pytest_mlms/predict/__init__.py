"""A manifest's model for use: a person's inputs go through it as those of items do."""
