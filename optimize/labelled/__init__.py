"""Labelled questions: read, imported, checked and split."""
