"""Files turned into passages with titles, dates and authority."""

__all__ = ["blocks", "bounds", "convert", "csv_rows", "csv_tables", "folder", "metadata", "records", "sections"]
