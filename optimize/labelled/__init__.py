"""Labelled questions: read, imported, checked and split."""

__all__ = ["check", "dataset", "formats", "imports", "rules", "split"]
