"""The models of each role, found by name."""

__all__ = ["catalog", "clients", "deciders", "embedded", "language", "requests"]
