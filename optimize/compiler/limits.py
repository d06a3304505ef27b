"""What may be asked of a compile, on the command line and from Python: cheap to import."""

from __future__ import annotations

MOST_TRIALS = 1_000_000
MOST_SEED = 2**31 - 1  # what every generator of random numbers takes
MOST_CALLS = 10**9
LEAST_SECONDS = 1
MOST_PROCESSES = 2
SEARCHED = 120
"""Questions of train on which settings are tried at most; a compile's time grows with them. On the example's train and
dev 410 settings on 456 questions took 1,180 s of processor time; 110 settings on 120, with fewer finalists, took 408 s,
and no difference in utility could be told."""
