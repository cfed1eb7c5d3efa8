"""``arctic compaction forget-catalog``: after the catalog has moved."""

from arctic_orchestration.compaction.cli.context import opened_compaction
from arctic_orchestration.console.display import console, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.state import audit


def forget_catalog(as_json: JsonOption = False) -> None:
    """Unbind the state database from its catalog.

    The next command that works on a catalog binds it.

    Only where the catalog has moved, with its tables: of another one, all tables would be missing.
    """
    from arctic_orchestration.compaction import catalog_binding

    with opened_compaction() as opened, opened.database.begin() as tx:
        forgotten = catalog_binding.forget(tx)
        if forgotten is not None:
            audit.record(tx, opened.actor, "compaction", "forget-catalog", forgotten)
    if as_json:
        print_json({"forgotten": forgotten})
    elif forgotten is None:
        console().print("the state database is about no catalog yet; nothing was changed")
    else:
        console().print(
            f"the state database is about {escape(forgotten)} no more, but about the catalog that "
            "is worked on next"
        )
