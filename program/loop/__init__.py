"""The loop from a question to an answer: pure steps, and a runner that performs what they ask for."""

__all__ = ["answers", "evidence", "meter", "policy", "rag", "reply", "reviewed", "state", "steps", "trust"]
