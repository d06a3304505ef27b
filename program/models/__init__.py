"""The models of each role, found by name."""

__all__ = ["catalog", "deciders", "embedded", "language", "requests"]
