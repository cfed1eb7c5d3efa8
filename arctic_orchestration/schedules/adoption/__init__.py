"""Adopts the schedules and sensors of a Dagster project, one by one, and hands them back.

An *instigator* is a schedule or a sensor of Dagster. Adopting it is a *cut-over*: Dagster stops
evaluating it, and a schedule of ours begins where it stopped. The way *back* is the reverse. On
either way one number separates what belongs to the one from what belongs to the other, the
*boundary*: for what fires by the clock a moment, for what fires by events an id of Dagster's event
log. What is at most the boundary belongs to the one that ends, what is above it to the one that
begins. So nothing is run twice and nothing is missed, if the one that ends has finished all that is
at most the boundary and touches nothing above it; and that is what the steps wait for.

Each way is a sequence of steps, written into a journal (``arctic_adoptions``) before the next one
begins. Each step finds out what is there, and may be repeated after a crash at any line:

===========  ====================================================================================
shadowed     a step before the others, for who wants it: the schedule decides and launches nothing
prepared     the schedule exists, suspended; Dagster's instigator is as it was
stopped      Dagster's is stopped, its last tick has ended, and the boundary is known
adopted      the schedule has begun above the boundary: in one transaction with this step
ended        on the way back: the schedule takes nothing above the boundary, in one transaction
             with this step; Dagster's is not started yet
handed over  Dagster's runs again, above the boundary; ours finishes what it has taken
===========  ====================================================================================

After the last step the row is deleted. A way back may begin at any step of a cut-over: before
*adopted* nothing of ours has run, and Dagster's goes on at the place where it stopped.

**Ours begins** in one transaction of the state database. The location's row is locked, so that no
dispatcher reads meanwhile, and the event log is read to its end for all schedules. Events above the
boundary that were delivered by then would not come again: they are looked up in the log and given
to the schedule as deferred arrivals, which the next tick takes before any other event. All other
events come by the feed. An event of a transaction that was still open, with an id below the
boundary, comes by the feed, too: Dagster's cursor has passed it, so Dagster would never have run
it. For the clock, the timers wait for the first tick above the boundary; a tick that is due by now
is made up by the catch-up rule of the trigger.

**Ours ends** in one transaction, too: the log is read to its end, ticks that are due by now are
delivered, and the schedule stores the last event that it takes (``until_event``). Events up to
there that are committed late still reach it, until no older one can appear; Dagster's cursor starts
at the same id. Waiting jobs are not discarded: they pass their constraints and are launched. Then
the schedule is suspended, or deleted if it was created for the adoption.

**In shadow** the schedule has a status of its own, which no file and no request can give it. Its
jobs pass trigger, constraints and request hook; a job that is admitted holds nothing, is marked
(``launch``), and is discarded where its run would be requested, whatever became of the schedule
meanwhile. Beginning, ending, and going on with a cut-over are one transaction each. What is waiting
then is discarded, and partitions that fired are forgotten: nothing of it has run. ``comparison``
says which decisions differ.

What Dagster's side has to guarantee is in :mod:`..dagster.adoption.instigators`.
"""
