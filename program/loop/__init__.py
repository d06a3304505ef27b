"""The loop from a question to an answer: pure steps, and drivers that perform what they ask for."""

__all__ = ["decisions", "evidence", "grounding", "policy", "question_meter", "rag", "reviewed", "state", "steps"]
