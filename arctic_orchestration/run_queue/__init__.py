"""The rules of Dagster's run queue: what may start, in which order, and why the rest waits.

======================  ==================================================================
``rules``               the rules in ``dagster.yaml``
``tags``                the rules that apply to a run, and their tags
``aging``               levels that age, as one number
``census``              queued, active and ended runs, as values
``windows``, ``gates``  the current state of each rule, with its reason
``shares``              slots in proportion to shares
``plan``                one pass: limits for Dagster's daemon, turns, reasons
``hold_limits``         the limits while a pass cannot be made
``pauses``, ``waits``   stored in the state database: pauses, reported reasons
======================  ==================================================================

The core does not import Dagster; :mod:`arctic_orchestration.coordinator` does.
"""
