"""Measurements. Nothing here asserts a time: it prints what was seen."""
