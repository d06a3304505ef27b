"""Answers and searches graded by labels, and figures with their intervals."""

__all__ = ["comparison", "evaluate", "grades", "losses", "outcome", "retrieval", "risk", "stats"]
