"""The models of each role, found by name."""
