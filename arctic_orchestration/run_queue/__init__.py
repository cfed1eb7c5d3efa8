"""The rules of Dagster's run queue: what may start, in which order, and why the rest waits.

======================  ==================================================================
``rules``               what is written in ``dagster.yaml``
``tags``                under which rules a run stands, and the tags that say so
``ageing``              levels that age, as one number
``census``              what waits, is in progress and ended, as values
``windows``, ``gates``  each rule as it is now, with its reason
``shares``              slots in proportion to shares
``plan``                one pass: limits for Dagster's daemon, turns, reasons
``holding``             the limits while a pass cannot be made
``pauses``, ``waits``   what the state database keeps: pauses, reasons that were told
======================  ==================================================================

Nothing here knows Dagster; :mod:`arctic_orchestration.coordinator` does.
"""
