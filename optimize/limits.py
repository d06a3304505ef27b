"""What may be asked of a compile, on the command line and from Python: cheap to import."""

from __future__ import annotations

MOST_TRIALS = 1_000_000
MOST_SEED = 2**31 - 1  # what every generator of random numbers takes
MOST_CALLS = 10**9
LEAST_SECONDS = 1
MOST_PROCESSES = 2
SEARCHED = 120
"""Questions of train on which settings are tried at most. All 477 of the example under 410 settings took three times
the processor time (1,180 s, not 408), and led to no detectably better program."""
