"""The versions of a program: published, aliased, compared and removed."""

__all__ = ["aliases", "diff", "retention", "versions"]
