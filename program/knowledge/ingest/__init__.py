"""Files turned into passages with titles, dates and authority."""

__all__ = ["amounts", "convert", "csv_rows", "folder", "metadata", "sections"]
