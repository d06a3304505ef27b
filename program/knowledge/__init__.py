"""The knowledge of a project: its sources read, indexed and searched."""

__all__ = ["documents", "index", "ingest", "library", "project", "tables", "testing", "web"]
