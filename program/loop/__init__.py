"""The loop from a question to an answer: pure steps, and drivers that perform what they ask for."""

__all__ = [
    "answers",
    "decisions",
    "drafts",
    "evidence",
    "policy",
    "question_meter",
    "rag",
    "reply",
    "reviewed",
    "state",
    "steps",
]
