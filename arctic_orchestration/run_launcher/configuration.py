"""The configuration of :class:`~arctic_orchestration.run_launcher.ArcticRunLauncher`.

::

    run_launcher:
      module: arctic_orchestration.run_launcher
      class: ArcticRunLauncher
      config:
        hosts: true                # false: every run goes to the wrapped launcher
        idle_timeout: 15m          # a run host ends after this time without a run
        start_timeout: 2m          # how long a run host may take to load its code
        preload: [pyspark.sql]     # modules to import once, beside those of the code location
        unavailable: wrapped       # or fail: the fate of a run whose host cannot be started
        wrapped:                   # takes the runs that no host can execute
          module: dagster
          class: DefaultRunLauncher
          config: {}
        spark:
          sessions: 3              # the maximum number of JVMs of a run host; 0: none
          idle_timeout: 10m        # a JVM ends after this time without a run
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from arctic_orchestration.quantities import PositiveDuration
from arctic_orchestration.specification import Specification

_Count = Annotated[int, Field(ge=0, le=1_000, strict=True)]
_Text = Annotated[str, Field(min_length=1, strict=True)]


class WarmSpark(Specification):
    """How many JVMs a run host keeps, and for how long."""

    sessions: _Count = 3
    idle_timeout: PositiveDuration = timedelta(minutes=10)


class WrappedLauncher(Specification):
    """The class that launches runs that no run host can execute, as in ``dagster.yaml``."""

    module: _Text = "dagster"
    class_: _Text = Field(default="DefaultRunLauncher", alias="class")
    config: dict[str, Any] = Field(default_factory=dict)


class LauncherRules(Specification):
    """The whole of ``run_launcher.config``."""

    hosts: Annotated[bool, Field(strict=True)] = True
    idle_timeout: PositiveDuration = timedelta(minutes=15)
    start_timeout: PositiveDuration = timedelta(minutes=2)
    preload: tuple[_Text, ...] = ()
    unavailable: Literal["wrapped", "fail"] = "wrapped"
    wrapped: WrappedLauncher = WrappedLauncher()
    spark: WarmSpark = WarmSpark()

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self:
        """Parses ``run_launcher.config`` of ``dagster.yaml``.

        Errors:
            InvalidDefinition: names invalid fields by path, value and what was expected.
        """
        given = {key: value for key, value in config.items() if value is not None}
        return cls.parse(given, field="run_launcher.config")
