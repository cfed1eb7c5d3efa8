"""Arbitrary schedules for Hypothesis, as the forms that people write and as `Schedule`.

Forms are built kind by kind from section 4 of the design. No timeout is shorter than a delay,
and nothing else contradicts itself.
"""

from typing import Any

from hypothesis import strategies as st

from arctic_orchestration.schedules.schedule import Schedule

Form = dict[str, Any]

assets = st.sampled_from(["raw/flights", "raw/a", "b", "été", "with space/x"])
jobs = st.sampled_from(["rollup", "ingest", "_j.2"])
counts = st.integers(1, 1000)
durations = st.sampled_from(
    ["1ms", "90s", "5m", "1h30m", "4h", "1d", "1.5h", "36h", "0.25s", "2d12h", "1000ms"]
)
sizes = st.sampled_from(["1B", "500KB", "100MB", "1.5GB", "2GB", "4KiB", "100MiB", "1GiB", "3TB"])
zones = st.sampled_from(["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"])
statuses = st.sampled_from(["success", "failure", "canceled", "started"])
ended = st.sampled_from(["success", "failure", "canceled"])
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
shares = st.sampled_from([0.05, 0.5, 0.8, 1])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(-1e9, 1e9)
    | texts
    # What plain YAML would take for something else.
    | st.sampled_from(["on", "no", "22:00", "2026-01-01", "~", "null", "1_000", "0x1f", "=", "<<"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def fields(required: Form, optional: Form) -> st.SearchStrategy[Form]:
    """A mapping with all of ``required`` and some of ``optional``."""
    return st.fixed_dictionaries(required, optional=optional)


LEAVES: dict[str, st.SearchStrategy[Form]] = {
    "cron": fields(
        {"expression": st.sampled_from(["0 4 * * *", "H * * * *", "@daily", "*/5 8-17 * * mon"])},
        {
            "timezone": zones,
            "catch_up": st.sampled_from(["latest", "all", "none"]),
            "catch_up_limit": counts,
            "grace": durations,
            "dst": st.sampled_from(["dagster", "first", "second", "both", "skip"]),
        },
    ),
    "partitions": fields(
        {"asset": assets},
        {"count": counts, "where": st.sampled_from(["*", "2026-*", "[ab]?", "no"])},
    ),
    "data": fields({"asset": assets, "size": sizes}, {"max_wait": durations}),
    "quiet": fields(
        {"asset": assets, "duration": st.sampled_from(["1ms", "90s", "5m"])},
        {"max_wait": st.sampled_from(["4h", "1d"])},
    ),
    "run": fields(
        {"job": jobs},
        {
            "status": statuses | st.lists(statuses, min_size=1, max_size=3, unique=True),
            "count": counts,
            "location": names,
        },
    )
    | fields({"assets": st.lists(assets, min_size=1, max_size=3, unique=True)}, {"count": counts}),
    "check": fields({"asset": assets}, {"name": names, "count": counts})
    | fields(
        {"asset": assets, "status": st.just("failed")},
        {"severity": st.sampled_from(["warn", "error"])},
    ),
    "freshness": fields(
        {
            "asset": assets,
            "state": st.lists(
                st.sampled_from(["pass", "warn", "fail"]), min_size=1, max_size=3, unique=True
            ),
        },
        {},
    ),
}


def of_kind(kind: str, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Form]:
    """``{kind: inner}``."""
    return inner.map(lambda body: {kind: body})


_leaves = st.one_of([of_kind(kind, inner) for kind, inner in LEAVES.items()])
#: What ``elapsed`` may count from: leaves that events satisfy.
_events = st.one_of(
    of_kind("partitions", LEAVES["partitions"]),
    of_kind("data", fields({"asset": assets, "size": sizes}, {})),
    of_kind("run", LEAVES["run"]),
)
_elapsed = of_kind(
    "elapsed", fields({"duration": durations}, {"since": st.just("last_launch") | _events})
)


def _combined(inner: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    several = st.lists(inner, min_size=1, max_size=3)
    two_or_more = st.lists(inner, min_size=2, max_size=3)
    return (
        of_kind("any_of", several)
        | of_kind("all_of", two_or_more)
        # Durations of which none is shorter than those of what stands inside.
        | of_kind("all_of", fields({"of": two_or_more}, {"wait": st.sampled_from(["30d", "60d"])}))
        | of_kind("all_of", fields({"of": two_or_more}, {"within": st.just("90d")}))
    )


triggers = st.recursive(_leaves | _elapsed, _combined, max_leaves=6)

_otherwise = {"otherwise": st.sampled_from(["hold", "cancel"])}
CONSTRAINTS: dict[str, st.SearchStrategy[Form]] = {
    "concurrency": fields({"limit": counts}, {"group": names, **_otherwise}),
    "rate": fields({"limit": counts, "per": durations}, {"group": names, **_otherwise}),
    "window": fields(
        {
            "start": st.sampled_from(["22:00", "00:00", "09:30"]),
            "end": st.sampled_from(["06:00", "12:15", "23:59"]),
        },
        {
            "timezone": zones,
            "days": st.lists(
                st.sampled_from(["mon", "tue", "wed", "thu", "fri", "sat", "sun"]),
                min_size=1,
                unique=True,
            ),
            **_otherwise,
        },
    ),
    "delay": fields({"duration": durations}, {}),
    "minimum_interval": fields(
        {"duration": durations},
        {"statuses": st.lists(ended, min_size=1, max_size=3, unique=True), **_otherwise},
    ),
    "load": fields(
        {"below": shares},
        {"probe": st.sampled_from(["runs", "cpu", "memory", "spark"]), **_otherwise},
    ),
    "fresh": fields(
        {
            "parents": st.dictionaries(
                assets | jobs, st.sampled_from([1, 24, 0.5, 168]), min_size=1, max_size=3
            )
        },
        {"recheck": st.sampled_from(["30s", "2m", "1h"]), **_otherwise},
    ),
    "checks_passed": fields(
        # A cron trigger names no asset.
        {"assets": st.lists(assets, min_size=1, max_size=3, unique=True)},
        {"checks": st.lists(names, min_size=1, max_size=3, unique=True), **_otherwise},
    ),
    "idle": fields(
        {"jobs": st.lists(jobs, min_size=1, max_size=2, unique=True)},
        {"assets": st.lists(assets, min_size=1, max_size=2, unique=True), **_otherwise},
    ),
}
constraints = st.one_of([of_kind(kind, inner) for kind, inner in CONSTRAINTS.items()])

#: One window at most, which holds: two that never meet are refused, and one that cancels what no
#: tick of a cron trigger can meet.
_agreeing = st.builds(
    lambda others, window: [*others, *window],
    st.lists(
        st.one_of(
            [of_kind(kind, inner) for kind, inner in CONSTRAINTS.items() if kind != "window"]
        ),
        max_size=3,
    ),
    st.lists(
        of_kind("window", CONSTRAINTS["window"].map(lambda body: {**body, "otherwise": "hold"})),
        max_size=1,
    ),
)

_OF_THE_SCHEDULE = ("elapsed", "freshness")


def _leaves_of(trigger: Form) -> list[tuple[str, Form]]:
    ((kind, body),) = trigger.items()
    if kind not in ("any_of", "all_of"):
        return [(kind, body)]
    children = body if isinstance(body, list) else body["of"]
    return [leaf for child in children for leaf in _leaves_of(child)]


def _with_fitting_partitions(form: Form) -> Form:
    """Without those of the target where the trigger's time or events are about none."""
    leaves = _leaves_of(form["trigger"])
    since = [body.get("since", "last_launch") for kind, body in leaves if kind == "elapsed"]
    fits = any(kind not in _OF_THE_SCHEDULE for kind, _ in leaves)
    if fits and all(each == "last_launch" for each in since):
        return form
    return {name: value for name, value in form.items() if name != "partitions"}


_made = assets.map(lambda asset: f"made/{asset}")

#: Whole schedules in the form of a file.
forms: st.SearchStrategy[Form] = fields(
    {
        "name": names,
        # What no trigger names: own runs do not set it off.
        "target": of_kind("job", jobs.map(lambda job: f"made_{job}"))
        | of_kind("assets", st.lists(_made, min_size=1, max_size=3, unique=True)),
        "trigger": triggers,
        # Longer than any delay above.
        "timeout": st.sampled_from(["100d", "365d", "2400h1ms"]),
    },
    {
        "description": texts,
        "constraints": _agreeing,
        "on_timeout": st.sampled_from(["discard", "launch"]),
        "suspend_mode": st.sampled_from(["drop", "drain", "backlog", "collect"]),
        "priority": st.integers(-1_000_000, 1_000_000),
        "coalesce": st.booleans(),
        "partitions": st.sampled_from(["none", "each", "range"]),
        "properties": st.dictionaries(texts, json_values, max_size=3),
        "tags": st.dictionaries(st.sampled_from(["team", "on", "22:00"]), texts, max_size=2),
        "run_config": st.dictionaries(texts, json_values, max_size=2),
        "enabled": st.booleans(),
    },
).map(_with_fitting_partitions)
schedules: st.SearchStrategy[Schedule] = forms.map(Schedule.parse)
