"""The index of passages: keywords, vectors and graph, and how their scores become one."""

__all__ = ["build", "fusion", "graph_search", "store"]
