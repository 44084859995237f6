"""Models to try castiron on, and the demonstration that the README's first command runs."""
