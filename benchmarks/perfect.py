def cascade_figures(n): return []
