"""Versions opened, checked, followed and put to a live test."""

__all__ = [
    "artifact",
    "experiment",
    "experiment_store",
    "factory",
    "follow",
    "manifest",
    "opening",
    "reference",
    "trace",
]
