"""The code location whose runs wait in the queues of the tests; nothing in it is ever executed.

``ice``, ``snow`` and ``fog`` are pools of Dagster.
"""

import dagster as dg


@dg.op
def anything() -> int:
    """Takes no pool."""
    return 1


@dg.op(pool="ice")
def icy() -> int:
    """Takes a slot of ice."""
    return 1


@dg.op(pool="snow")
def snowy() -> int:
    """Takes a slot of snow."""
    return 1


@dg.op(tags={"dagster/concurrency_key": "ice"})
def icy_by_tag() -> int:
    """Takes a slot of ice, as it was said before there were pools."""
    return 1


@dg.op(pool="fog")
def foggy(before: int) -> int:
    """Takes a slot of fog, after another one."""
    return before


@dg.op(pool="fog")
def foggy_too(before: int) -> int:
    """Takes another slot of fog, after another one."""
    return before


@dg.job
def load() -> None:
    """A run without pools and tags."""
    anything()


@dg.job
def bill() -> None:
    """Another one."""
    anything()


@dg.job(tags={"team": "finance"})
def refund() -> None:
    """A run that has a tag of its job."""
    anything()


@dg.job
def needs_ice() -> None:
    """Cannot begin without ice."""
    icy()


@dg.job
def needs_ice_by_tag() -> None:
    """Cannot begin without ice."""
    icy_by_tag()


@dg.job
def needs_fog() -> None:
    """Begins with an op without a pool, then takes fog."""
    foggy(anything())


@dg.job
def ice_or_snow() -> None:
    """Begins with ice or with snow, whichever there is."""
    icy()
    snowy()


@dg.job
def ice_or_anything() -> None:
    """Begins with ice or without a pool."""
    icy()
    anything()


@dg.job
def ice_snow_then_fog() -> None:
    """Begins with ice or with snow; two steps later on take fog."""
    foggy(icy())
    foggy_too(snowy())


@dg.asset(key=["marts", "orders"], pool="ice", tags={"tier": "1"})
def orders() -> None:
    """Takes a slot of ice."""


@dg.asset(key=["marts", "refunds"], pool="snow", tags={"tier": "2"})
def refunds() -> None:
    """Takes a slot of snow."""


@dg.asset(key=["marts", "totals"], deps=[orders], pool="fog")
def totals() -> None:
    """Takes a slot of fog, once there are orders."""


@dg.asset(key=["yard", "nets"], tags={"arctic/group": "few", "arctic/rate.api": ""})
def nets() -> None:
    """Names a group and a rate."""


@dg.asset(key=["yard", "ropes"], tags={"arctic/group.each": "", "arctic/level": "3"})
def ropes() -> None:
    """Names another group, and a level."""


@dg.asset(key=["yard", "sails"], tags={"arctic/group": "nobody", "arctic/queue": "sails"})
def sails() -> None:
    """Names a group that there may not be, and a queue."""


yard = dg.define_asset_job("yard", selection=dg.AssetSelection.key_prefixes("yard"))
marts = dg.define_asset_job("marts", selection=dg.AssetSelection.key_prefixes("marts"))

#: a code location
lake = dg.Definitions(
    assets=[orders, refunds, totals, nets, ropes, sails],
    jobs=[
        load,
        bill,
        refund,
        needs_ice,
        needs_ice_by_tag,
        needs_fog,
        ice_or_snow,
        ice_or_anything,
        ice_snow_then_fog,
        marts,
        yard,
    ],
)
#: another one
harbour = dg.Definitions(jobs=[load, bill])
