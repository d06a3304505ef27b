"""The index of passages: keywords, vectors and graph, and how their scores become one."""
