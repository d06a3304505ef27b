"""PDF files read with the places of their words: pages, lines, tables, and blocks of them."""

__all__ = ["reading"]
