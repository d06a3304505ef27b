"""The knowledge of a project: its sources read, indexed and searched."""
