"""Two code locations that declare one ``Arctic(location=…)``: the second is refused."""

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.state.tables import locations, schedules
from arctic_orchestration_tests.code_location.conftest import Place


def declared(*names: str, location: str | None = "lake") -> dg.Definitions:
    @dg.op
    def nothing() -> None: ...

    @dg.job
    def rollup() -> None:
        nothing()

    made = [Schedule(name=name, target="rollup", trigger=on.cron("0 4 * * *")) for name in names]
    arctic = Arctic(schedules=made, location=location, numbers_every=None)
    return dg.Definitions.merge(dg.Definitions(jobs=[rollup]), arctic.definitions())


def loaded_as(name: str) -> InProcessCodeLocationOrigin:
    """The code location of a workspace that has this name."""
    return InProcessCodeLocationOrigin(
        LoadableTargetOrigin(python_file="defs.py"), location_name=name
    )


def test_a_second_code_location_is_refused_and_deletes_nothing(place: Place) -> None:
    """The schedules of the first stay, and the message says what to do."""
    first, second = declared("nightly"), declared("hourly")
    place.tick(first, loaded_as("team_a"))
    with pytest.raises(Exception, match="team_b") as refused:
        place.tick(second, loaded_as("team_b"))
    cause = refused.value.__cause__ or refused.value
    assert isinstance(cause, ConfigurationError)
    assert "team_a" in str(cause)
    assert "arctic locations unbind lake" in str(cause)
    assert place.rows(schedules, "name") == [("nightly",)]
    place.tick(first, loaded_as("team_a"))


def test_a_code_location_that_was_renamed_is_bound_again_once_unbound(place: Place) -> None:
    """Its schedules go on as they were."""
    place.tick(declared("nightly"), loaded_as("old"))
    with place.database.begin() as tx:
        tx.execute(locations.update().values(owner=None))
    place.tick(declared("nightly"), loaded_as("new"))
    assert place.rows(locations, "name", "owner") == [("lake", "new/__repository__")]
    assert place.rows(schedules, "name", "version") == [("nightly", 1)]
    with pytest.raises(Exception, match="new/__repository__"):
        place.tick(declared("nightly"), loaded_as("old"))


def test_code_locations_with_names_of_their_own_share_a_cluster(place: Place) -> None:
    """Each has its own row, and so its own schedules."""
    place.tick(declared("nightly", location=None), loaded_as("team_a"))
    place.tick(declared("hourly", location=None), loaded_as("team_b"))
    assert place.rows(schedules, "name") == [("hourly",), ("nightly",)]
    owners = [("team_a", "team_a/__repository__"), ("team_b", "team_b/__repository__")]
    assert place.rows(locations, "name", "owner") == owners
