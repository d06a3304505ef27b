"""Files turned into passages with titles, dates and authority."""

__all__ = [
    "amounts",
    "bounds",
    "convert",
    "csv_rows",
    "csv_tables",
    "folder",
    "metadata",
    "records",
    "sections",
    "table_rows",
]
