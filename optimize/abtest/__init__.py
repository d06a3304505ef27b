"""Versions compared on labelled questions or on live traffic, with the statistics that hold for each."""
