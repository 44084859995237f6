"""Builds that tests of artifacts and weights share."""
