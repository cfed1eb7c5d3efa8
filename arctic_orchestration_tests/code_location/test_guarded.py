"""``guarded``: what surrounds an asset's function, whatever that takes and gives."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from arctic_orchestration import fresh_parents
from arctic_orchestration.errors import LeaseLost, Refused
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.dagster.fresh_parents import (
    check_lease,
    declared,
    guarded,
    spec_of,
)


def task(definition: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """Declares an asset as a task, without the guard of ``fresh_parents``."""
    name = definition.key.to_user_string()
    return declared(definition, TaskSpec.parse({"name": name, "target": name}))


class Size(dg.Config):
    """Run configuration."""

    rows: int = 5


class Shop(dg.ConfigurableResource[Any]):
    """A resource."""

    name: str = "corner"


class Seen:
    """A guard that notes when it was entered and left, and what Dagster had stored by then."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.lost = self.superseded = False

    def check(self) -> None:
        """The right is lost once that was reported."""
        if self.lost:
            raise LeaseLost("another run has it")

    def show(self) -> None:
        """The token is another's, likewise."""
        if self.superseded:
            raise Refused("another run was faster")

    @contextmanager
    def __call__(self, context: dg.AssetExecutionContext, spec: TaskSpec) -> Iterator["Seen"]:
        self.calls.append(f"enters {spec.name}")
        context.add_asset_metadata({"token": 7})
        try:
            yield self
        except BaseException as error:
            self.calls.append(type(error).__name__)
            raise
        stored = context.instance.all_logs(
            context.run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
        )
        self.calls.append(len(stored))


def made(definition: dg.AssetsDefinition) -> tuple[list[object], dict[str, Any]]:
    """What a guard saw of a run, and the metadata of what it materialized."""
    seen, spec = Seen(), spec_of(definition)
    assert spec is not None
    asset = guarded(definition, spec, seen)
    result = dg.materialize(
        [asset],
        instance=dg.DagsterInstance.ephemeral(),
        resources={"shop": Shop(name="mill")},
        raise_on_error=False,
    )
    events = result.asset_materializations_for_node(definition.op.name)
    metadata = {name: value.value for event in events for name, value in event.metadata.items()}
    return seen.calls, metadata


@task
@dg.asset
def takes_everything(
    context: dg.AssetExecutionContext, config: Size, shop: Shop
) -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult(metadata={"rows": config.rows, "shop": shop.name})


@task
@dg.asset(required_resource_keys={"shop"})
def yields(context: dg.AssetExecutionContext) -> Iterator[Any]:
    context.log.info("on the way")
    yield dg.MaterializeResult(metadata={"shop": context.resources.shop.name})


@task
@dg.asset
def returns_a_value() -> int:
    return 3


@task
@dg.asset(output_required=False)
def makes_nothing() -> Iterator[Any]:
    yield from ()


@pytest.mark.parametrize(
    ("definition", "metadata", "stored"),
    [
        (takes_everything, {"rows": 5, "shop": "mill", "token": 7}, 1),
        (yields, {"shop": "mill", "token": 7}, 1),
        (returns_a_value, {"token": 7}, 1),
        (makes_nothing, {}, 0),
    ],
    ids=["everything", "yields", "value", "nothing"],
)
def test_it_is_left_when_dagster_has_stored_what_came(
    definition: dg.AssetsDefinition, metadata: dict[str, Any], stored: int
) -> None:
    """Configuration, resources and what is returned or yielded are as without a guard."""
    calls, found = made(definition)
    assert calls == [f"enters {definition.key.to_user_string()}", stored]
    assert {name: found.get(name) for name in metadata} == metadata


@task
@dg.asset
def breaks() -> None:
    raise ValueError("on purpose")


@task
@dg.asset
def breaks_late() -> Iterator[Any]:
    yield dg.MaterializeResult()
    raise ValueError("on purpose")


def test_what_is_raised_passes_through_it() -> None:
    """Before anything came, and after something was stored."""
    assert made(breaks) == (["enters breaks", "ValueError"], {})
    calls, metadata = made(breaks_late)
    assert calls == ["enters breaks_late", "ValueError"]
    assert metadata["token"] == 7


def test_called_directly_it_is_the_function() -> None:
    """As in a test of it: no run, and nothing around it."""
    seen = Seen()
    for definition, expected in ((returns_a_value, 3), (makes_nothing, [])):
        spec = spec_of(definition)
        assert spec is not None
        result: Any = guarded(definition, spec, seen)()
        assert (result if isinstance(result, int) else list(result)) == expected
    assert seen.calls == []


def test_a_lost_task_is_detected_before_a_write() -> None:
    """Where a task is being made, and nowhere else."""
    seen = Seen()
    written = []

    @task
    @dg.asset
    def writes() -> Iterator[Any]:
        check_lease()
        written.append("before")
        seen.lost = True
        yield dg.MaterializeResult()
        check_lease()
        written.append("after")

    spec = spec_of(writes)
    assert spec is not None
    result = dg.materialize(
        [guarded(writes, spec, seen)],
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=False,
    )
    assert not result.success
    assert written == ["before"]
    assert seen.calls == ["enters writes", "LeaseLost"]
    check_lease()


def test_nothing_is_stored_of_who_was_superseded_while_it_worked() -> None:
    """What it returns, or yields next; it is closed before the guard is left."""
    seen = Seen()

    @task
    @dg.asset
    def returns() -> None:
        seen.superseded = True

    @task
    @dg.asset
    def yields_twice() -> Iterator[Any]:
        yield dg.AssetObservation("yields_twice")
        seen.superseded = True
        try:
            yield dg.MaterializeResult()
        finally:
            seen.calls.append("closed")

    for definition, expected in ((returns, []), (yields_twice, ["closed"])):
        seen.calls, seen.superseded = [], False
        spec = spec_of(definition)
        assert spec is not None
        instance = dg.DagsterInstance.ephemeral()
        result = dg.materialize(
            [guarded(definition, spec, seen)], instance=instance, raise_on_error=False
        )
        assert not result.success
        assert instance.get_latest_materialization_event(definition.key) is None
        assert seen.calls == [f"enters {spec.name}", *expected, "Refused"]
    assert result.get_asset_observation_events()


def test_a_unit_test_of_an_asset_needs_no_state_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it leave one where it runs."""
    monkeypatch.chdir(tmp_path)

    @fresh_parents({})
    @dg.asset
    def alone() -> None: ...

    assert dg.materialize([alone]).success
    assert list(tmp_path.iterdir()) == []
