"""What is compiled: a project, or anybody's DSPy program."""

__all__ = ["examples", "module", "optimizers", "project", "task"]
