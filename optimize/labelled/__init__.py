"""Labelled questions: read, imported, checked and split."""

__all__ = ["check", "dataset", "facts", "imports", "rules", "split"]
