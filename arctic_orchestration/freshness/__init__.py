"""Tasks that run only when their parents are fresh enough, and once for all clusters."""
