"""The compiler: labelled questions in, a sealed version out."""

__all__ = ["compile", "publish", "runs", "session", "tasks"]
