"""Programs run on questions from a record of what was asked: a project's by its requests, anybody's by its calls."""

__all__ = ["module_runs", "replay", "runner", "workers"]
