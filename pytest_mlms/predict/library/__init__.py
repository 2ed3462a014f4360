"""The shared library through which programs in C and Java use a manifest's model."""
