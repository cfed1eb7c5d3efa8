"""What waits, over all features: one answer to what, since when, for what, held by whom.

Each feature names its waiting rows and describes them, in its own ``views/waits.py``. This room
counts, groups, filters and pages them, and has no reasons of its own.
"""
