"""Versions opened, checked, followed and put to a live test."""
