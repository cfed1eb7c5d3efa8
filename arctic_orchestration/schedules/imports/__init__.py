"""Schedules of other schedulers, as files of schedules of this one.

Each source has a module that turns one foreign object into the form of one schedule, and says on
its :class:`~.draft.Draft` what differs. What no module understands is named, never dropped.
"""
