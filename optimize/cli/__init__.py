"""The command line `ragc`: one file for each group of verbs."""

__all__: list[str] = []
