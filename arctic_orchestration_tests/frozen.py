"""Leaves what is loaded out of all collections of garbage, which would copy its memory in forks."""

import gc

gc.collect()
gc.freeze()
gc.set_threshold(20_000, 20, 20)
