"""What processes that are forked from the server of ``forking`` begin with."""

from arctic_orchestration_tests import without_fsync

without_fsync.put_in_place()
