"""Files turned into passages with titles, dates and authority."""
