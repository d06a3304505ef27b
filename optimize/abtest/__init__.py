"""Versions compared on labelled questions or on live traffic, with the statistics that hold for each."""

__all__ = ["offline", "online"]
