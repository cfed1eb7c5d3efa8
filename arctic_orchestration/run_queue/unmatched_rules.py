"""Finds rules whose ``match`` selects no run, by the jobs and assets of code locations."""

from collections.abc import Iterator, Sequence

from arctic_orchestration.run_queue.rules import KINDS, Match, Rules, RunFacts


def unmatched(rules: Rules, known: Sequence[RunFacts]) -> Iterator[tuple[str, str]]:
    """Yields kind and name of rules whose matches fit no job and no asset of ``known``.

    Conditions on tags and locations count as met: both are only known of a run. So do those on
    Dagster's own jobs, which begin with two underscores.
    """
    for kind in KINDS:
        for name, rule in rules.named(kind).items():
            matches = [match.model_copy(update={"tags": {}, "location": None})
                       for match in rule.match]  # fmt: skip
            is_own = any((match.job or "").startswith("__") for match in matches)
            if matches and not is_own and not any(m.takes(run) for m in matches for run in known):
                yield kind, name


def shadowed(rules: Rules) -> Iterator[tuple[str, str]]:
    """Yields queues whose matches only select runs of an earlier queue, with that queue."""
    earlier: list[tuple[str, Match]] = []
    for name, queue in rules.queues.items():
        owners = [
            next((other for other, match in earlier if _includes(match, own)), None)
            for own in queue.match
        ]
        if owners and owners[0] is not None and None not in owners:
            yield name, owners[0]
        earlier.extend((name, match) for match in queue.match)


def _includes(wide: Match, narrow: Match) -> bool:
    """Returns whether ``wide`` certainly selects all that ``narrow`` does."""
    always = _covers(wide.job, narrow.job or "*") and _covers(wide.location, narrow.location or "*")
    return (
        always
        and (wide.asset is None or (narrow.asset is not None and _covers(wide.asset, narrow.asset)))
        and all(
            key in narrow.tags and _covers(pattern, narrow.tags[key])
            for key, pattern in wide.tags.items()
        )
    )


def _covers(wide: str | None, narrow: str) -> bool:
    return wide in (None, "*", narrow)
