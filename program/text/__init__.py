"""What a text is made of, and what it states: below everything that reads or writes one."""

__all__ = ["days", "facts", "history", "numbers", "pieces", "ranges", "words"]
