"""Anything a user calls a model -> Source."""

from castiron.frontend.examples import example_inputs
from castiron.frontend.source import Source, load

__all__ = ["Source", "example_inputs", "load"]
