"""Answers and searches graded by labels, and figures with their intervals."""
