"""What is compiled: a project, or anybody's DSPy program."""

__all__ = ["compile", "examples", "task"]
