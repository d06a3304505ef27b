"""Labelled questions: read, imported, checked and split."""

__all__ = ["check", "dataset", "draft", "formats", "imports", "reviewed", "rules", "split", "units"]
