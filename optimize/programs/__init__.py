"""Anybody's DSPy program: compiled, scored and sealed like the shipped one."""

__all__ = ["compile", "examples", "task"]
