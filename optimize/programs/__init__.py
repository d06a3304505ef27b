"""Anybody's DSPy program: compiled, scored and sealed like the shipped one."""
