"""The compiler; here are the limits of what may be asked of it, cheap to import."""

MOST_TRIALS, MOST_CALLS, MOST_SEED, LEAST_SECONDS = 1_000_000, 10**9, 2**31 - 1, 1

__all__ = [
    "LEAST_SECONDS",
    "MOST_CALLS",
    "MOST_SEED",
    "MOST_TRIALS",
    "compile",
    "publish",
    "runs",
    "session",
    "tasks",
]
