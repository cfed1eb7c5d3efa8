"""The definition of a schedule: a target, a trigger, constraints and a timeout."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Self

from pydantic import (
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import to_jsonable_python

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.quantities import Duration
from arctic_orchestration.schedules.constraints import AnyConstraint
from arctic_orchestration.schedules.constraints.base import asset_resource, job_resource
from arctic_orchestration.schedules.contradictions import contradictions
from arctic_orchestration.schedules.triggers import AnyTrigger
from arctic_orchestration.specification import (
    AssetName,
    IndexedName,
    Specification,
    json_form,
    name_of_asset,
    problems_of,
    unwritable,
)

#: Tags that identify a run and its cause: a schedule cannot set them.
_TAKEN_TAGS = (
    "arctic/",
    ".dagster/",
    "dagster/asset_partition_range",
    "dagster/backfill",
    "dagster/parent_run_id",
    "dagster/partition",
    "dagster/root_run_id",
    "dagster/run_key",
    "dagster/sensor_name",
    "dagster/tick",
    "dagster/will_retry",
)
#: Exceptions: tags by which rules of the run queue apply to a run.
_QUEUE_TAG = re.compile(r"arctic/(queue|level|(group|window|rate|interval)(\.[A-Za-z0-9_-]+)?)")
#: arguments of the constructor that are no fields
_NO_FIELDS = {
    "_field": "no such field",
    "_checked": "no such field",
    "request": "no such field: a request hook is a function, Schedule(request=...) in Python",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


def _assets_of(value: Any) -> Sequence[Any]:
    """Returns the keys of a definition of several assets; anything else as it is."""
    keys = getattr(value, "keys", None)
    return sorted(keys) if isinstance(keys, Collection) and len(keys) > 1 else [value]


def refused_tag(key: str) -> str | None:
    """Returns what is expected instead of a tag that a schedule cannot set, or None."""
    if _QUEUE_TAG.fullmatch(key):
        return None
    taken = [prefix for prefix in _TAKEN_TAGS if key.startswith(prefix)]
    return f"no tag that begins with {taken[0]}: it is set by what runs it" if taken else None


class Target(Specification):
    """What a job of the schedule runs: a Dagster job, or assets of the same code location."""

    job: IndexedName | None = None
    assets: tuple[AssetName, ...] = ()
    #: the Dagster object it was made from, unless it was written as names
    given: Any = Field(default=None, exclude=True, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _from_object(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"job": value}
        if isinstance(value, Target):
            return value
        if isinstance(value, dict):
            if "given" in value:
                raise ValueError("job or assets, and no other field")
            return value
        # Keys, specs and selections of Dagster are tuples themselves.
        several = value if type(value) in (list, tuple) else [value]
        several = [asset for one in several for asset in _assets_of(one)]
        if any(name_of_asset(one) is not one for one in several):
            return {"assets": several}
        # A Dagster job has a name; a selection of assets has none until it is resolved.
        name = getattr(value, "name", None)
        if isinstance(name, str) and not isinstance(value, Specification):
            return {"job": name, "given": value}
        if hasattr(value, "resolve"):
            return {"given": value}
        raise ValueError("a job, its name, or a selection of assets")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.job is not None) + bool(self.assets) > 1:
            raise ValueError("either job or assets, not both")
        if self.job is None and not self.assets and self.given is None:
            raise ValueError("a job, its name, or a selection of assets")
        return self

    @model_serializer
    def _to_form(self) -> dict[str, Any]:
        return {"job": self.job} if self.job is not None else {"assets": list(self.assets)}

    def to_text(self) -> str:
        """Returns the target as one text that identifies it."""
        return json.dumps(self._to_form())

    @property
    def is_selection(self) -> bool:
        """Whether it is a selection whose assets are not resolved yet."""
        return self.job is None and not self.assets

    def resources(self, cluster: str, location: str) -> tuple[str, ...]:
        """Returns the resource names under which runs of this target are counted."""
        place = f"{cluster}/{location}"
        if self.job is not None:
            return (job_resource(place, self.job),)
        return tuple(asset_resource(place, asset) for asset in self.assets)


class Schedule(Specification):
    """A rule that turns events into runs of its target.

    Errors:
        InvalidDefinition: names every field, its value and what was expected.
    """

    name: str = Field(json_schema_extra={"pattern": f"^{_NAME.pattern}$"})
    description: str = ""
    target: Target
    trigger: AnyTrigger
    constraints: tuple[AnyConstraint, ...] = ()
    #: how long a job waits, from its first event
    timeout: Duration = timedelta(days=1)
    #: at the end of the timeout: discard, or launch past all constraints but concurrency
    on_timeout: Literal["discard", "launch"] = "discard"
    #: while suspended: ignore events and discard the waiting job (drop) or finish it (drain), or
    #: go on taking events into a job for each firing (backlog) or one job (collect)
    suspend_mode: Literal["drop", "drain", "backlog", "collect"] = "drop"
    priority: int = Field(default=0, strict=True, ge=-1_000_000, le=1_000_000)
    #: whether events join the waiting job; false: a job for each firing
    coalesce: bool = Field(default=True, strict=True)
    #: one unpartitioned run, a run for each partition, or one for each contiguous range
    partitions: Literal["none", "each", "range"] = "none"
    properties: Mapping[str, Any] = Field(default_factory=dict)
    tags: Mapping[str, str] = Field(default_factory=dict)
    run_config: Mapping[str, Any] = Field(default_factory=dict)
    #: a new schedule is suspended unless this is set
    enabled: bool = Field(default=False, strict=True)
    _request: Callable[[Any], object] | None = PrivateAttr(default=None)

    def __init__(
        self,
        /,
        *,
        request: Callable[[Any], object] | None = None,
        _field: str = "",
        _checked: bool = False,
        **data: Any,
    ) -> None:
        """Checks the fields.

        Args:
            request: the request hook: called with a ``RequestContext`` before each run, returns
                a ``RunRequest`` with configuration and tags, a ``SkipReason``, or None for what is
                declared. It is no field: neither stored nor written as YAML.
        """
        name = data.get("name")
        field = _field or (f"Schedule({name})" if isinstance(name, str) else "Schedule")
        problems = unwritable(data, field)
        if request is not None and not callable(request):
            problems = [*problems, InvalidInput(f"{field}.request", request, "a function")]
        if problems:
            raise InvalidDefinition(problems)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise InvalidDefinition(problems_of(error, field)) from error
        # A definition in the database was checked when it was defined.
        problems = [] if _checked else contradictions(self, field=_field)
        if problems:
            raise InvalidDefinition(problems)
        self._request = request

    @property
    def request(self) -> Callable[[Any], object] | None:
        """The request hook, or None."""
        return self._request

    @classmethod
    def parse(cls, form: object, *, field: str = "") -> Self:
        """Parses the YAML or JSON form, already loaded into dicts and lists.

        Errors:
            InvalidDefinition: names every field, its value and what was expected.
        """
        if not isinstance(form, Mapping) or not all(isinstance(key, str) for key in form):
            raise InvalidDefinition(
                [InvalidInput(field or "(definition)", form, "a mapping of fields")]
            )
        for name, expected in _NO_FIELDS.items():
            if name in form:
                path = f"{field}.{name}".lstrip(".")
                raise InvalidDefinition([InvalidInput(path, form[name], expected)])
        return cls(_field=field, **form)

    @classmethod
    def stored(cls, form: Mapping[str, Any]) -> Self:
        """Parses the form in the database, which was checked when it was defined.

        Errors:
            InvalidDefinition: a version of the package with other fields wrote it.
        """
        return cls(_field="spec", _checked=True, **form)

    @field_validator("name")
    @classmethod
    def _readable_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("1 to 100 of A-Z a-z 0-9 _ . -, beginning with a letter or _")
        return value

    @field_validator("constraints", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        # pydantic would iterate over the fields of a single one.
        if isinstance(value, Specification):
            raise ValueError("a list")
        return value

    @field_validator("tags")
    @classmethod
    def _free_tags(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for key in value:
            if (expected := refused_tag(key)) is not None:
                raise ValueError(expected)
        return value

    @field_validator("run_config", mode="before")
    @classmethod
    def _of_object(cls, value: Any) -> Any:
        # Dagster's RunConfig, with values as objects.
        return value.to_config_dict() if hasattr(value, "to_config_dict") else value

    @field_validator("properties", "run_config")
    @classmethod
    def _storable(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        # A stored schedule must equal the declared one.
        form = dict(json_form(value))
        try:
            # As to_form() does, which would fail each tick.
            to_jsonable_python(list(form.values()))
        except UnicodeEncodeError as error:
            raise ValueError(f"keys without half of a surrogate pair: {error.object!a}") from None
        return form

    @property
    def trigger_assets(self) -> tuple[str, ...]:
        """The assets in the trigger's fields, each once."""
        leaves = self.trigger.leaves
        named = (asset for leaf in leaves for asset in leaf.asset_fields().values())
        return tuple(dict.fromkeys(named))

    def to_form(self) -> dict[str, Any]:
        """Returns the form for YAML, REST and the database; :meth:`parse` reads it."""
        return self.model_dump(mode="json", exclude_defaults=False)


def form_of(spec: str) -> Mapping[str, Any]:
    """Returns the form in a stored text; empty: it is none, as the store reports."""
    try:
        form = json.loads(spec)
    except ValueError:
        return {}
    return form if isinstance(form, dict) else {}


def digest(schedules: Iterable[Schedule]) -> str:
    """Returns a text that changes when one of the schedules does."""
    return digest_of_forms(schedule.to_form() for schedule in schedules)


def digest_of_forms(forms: Iterable[Mapping[str, Any]]) -> str:
    """As :func:`digest`, for forms made by :meth:`Schedule.to_form`."""
    texts = sorted(json.dumps(form, sort_keys=True) for form in forms)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
