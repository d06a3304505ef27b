"""Files turned into passages with titles, dates and authority."""

__all__ = ["convert", "folder", "metadata", "sections"]
