"""Answers and searches graded by labels, and figures with their intervals."""

__all__ = ["comparison", "evaluate", "grades", "outcome", "retrieval", "risk", "stats"]
