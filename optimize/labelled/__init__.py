"""Labelled questions: read, imported, checked and split."""

__all__ = ["check", "dataset", "facts", "formats", "imports", "rules", "split"]
