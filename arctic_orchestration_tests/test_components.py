"""Components: what ``defs.yaml`` files become together, and what is refused."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import DefsFolderSandbox, create_defs_folder_sandbox
from jsonschema import Draft202012Validator

from arctic_orchestration.components import (
    ArcticCompaction,
    ArcticConsumers,
    ArcticFreshness,
    ArcticSchedules,
)
from arctic_orchestration.dagster_internals import SensorSnap
from arctic_orchestration.schedules.dagster.dispatcher import DispatcherSensor

PAGE = Path(__file__).parents[1] / "docs" / "dg.md"
TYPE = "type: arctic_orchestration.components."
ASSETS = """
import dagster as dg
from arctic_orchestration import fresh_parents

@dg.asset
def orders(): ...

@fresh_parents({"orders": 24})
@dg.asset(deps=[orders])
def report(): ...

@fresh_parents({"report": 24})
@dg.job
def send(): ...
"""
OF_COMPONENT = """
import dagster as dg
from arctic_orchestration import fresh_parents

class Made(dg.Component, dg.Model, dg.Resolvable):
    name: str

    def build_defs(self, context):
        @fresh_parents({"orders": 24})
        @dg.asset(name=self.name)
        def made(): ...

        return dg.Definitions(assets=[made])

@dg.component_instance
def instance(context):
    return Made(name="made_in_code")

@fresh_parents({"orders": 24})
@dg.asset
def beside(): ...
"""
SCHEDULE = """
  - name: {name}
    target: {{assets: [report]}}
    trigger: {{partitions: {{asset: orders, count: {count}}}}}
"""


def schedules(name: str, count: object = 1) -> str:
    return f"{TYPE}ArcticSchedules\nattributes:\n  schedules:" + SCHEDULE.format(
        name=name, count=count
    )


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        (made.defs_folder_path / "assets.py").write_text(ASSETS)
        yield made


def write(sandbox: DefsFolderSandbox, **files: str) -> None:
    for folder, text in files.items():
        (sandbox.defs_folder_path / folder).mkdir()
        (sandbox.defs_folder_path / folder / "defs.yaml").write_text(text)


def sensors(sandbox: DefsFolderSandbox) -> list[str]:
    with sandbox.build_all_defs() as definitions:
        dg.Definitions.validate_loadable(definitions)
        return sorted(one.name for one in definitions.sensors or ())


def reason(sandbox: DefsFolderSandbox) -> str:
    """Returns the messages of the error with which the project does not load."""
    with pytest.raises(Exception, match="Error while") as raised:
        sensors(sandbox)
    texts, error = [], raised.value.__cause__ or raised.value.__context__
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def test_components_of_all_kinds_and_folders_are_one_location(sandbox: DefsFolderSandbox) -> None:
    """Two components of schedules, one of consumers, two of freshness: one sensor of each kind."""
    consumer = "\n  consumers: [{name: copy, asset: orders, target: {job: send}}]\n"
    write(
        sandbox,
        first=schedules("first"),
        second=schedules("second"),
        copies=f"{TYPE}ArcticConsumers\nattributes:{consumer}",
        tasks=f"{TYPE}ArcticFreshness\n",
        more=f"{TYPE}ArcticFreshness\n",
    )
    with sandbox.build_all_defs() as definitions:
        repository = definitions.get_repository_def()
        names = {one.name for one in repository.sensor_defs}
        keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}

    assert names == {"arctic_dispatcher", "arctic_tasks", "copy"}
    assert {"arctic/schedules/first", "arctic/schedules/second"} <= keys
    assert {"orders", "report", "arctic/tasks/report", "arctic/tasks/send"} <= keys


def test_tasks_of_a_projects_own_components_are_tasks(sandbox: DefsFolderSandbox) -> None:
    (sandbox.defs_folder_path / "own.py").write_text(OF_COMPONENT)
    of_yaml = f"type: {sandbox.project_name}.defs.own.Made\nattributes: {{name: made_in_yaml}}\n"
    write(sandbox, own_yaml=of_yaml, tasks=f"{TYPE}ArcticFreshness\n")
    with sandbox.build_all_defs() as definitions:
        graph = definitions.get_repository_def().asset_graph
        keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    made = {"made_in_code", "made_in_yaml", "beside"}
    assert made | {f"arctic/tasks/{name}" for name in made} <= keys


def test_every_example_loads_as_it_is_scaffolded(sandbox: DefsFolderSandbox) -> None:
    """What ``dg scaffold defs`` writes is valid, and every field has a text and examples."""
    for kind in (ArcticSchedules, ArcticConsumers, ArcticCompaction, ArcticFreshness):
        path = sandbox.scaffold_component(component_cls=kind)
        with sandbox.build_component_tree() as tree:
            assert isinstance(tree.load_component(path), kind)
        for field in kind.attributes.schema_of_file()["properties"].values():
            assert field["description"]
            assert field["examples"]


@pytest.mark.parametrize(("value", "enabled"), [("on", True), ("off", False)])
def test_whether_a_schedule_is_enabled_may_come_from_the_environment(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch, value: str, enabled: bool
) -> None:
    """Dagster reads templates as expressions of Python, as the page says."""
    monkeypatch.setenv("NIGHTLY", value)
    line = "    enabled: '{{ env.NIGHTLY == \"on\" }}'\n"
    write(sandbox, nightly=schedules("nightly") + line)
    with sandbox.build_component_tree() as tree:
        component = tree.load_component("nightly")
    assert isinstance(component, ArcticSchedules)
    (schedule,) = component.spec.schedules
    assert schedule.enabled is enabled


TEMPLATE = "{{ from_template_vars }}"
TRIGGER = {"partitions": {"asset": "orders", "count": TEMPLATE}}
FORM = {
    "name": TEMPLATE, "target": {"assets": [TEMPLATE]}, "trigger": {"any_of": [TRIGGER, TEMPLATE]},
    "constraints": TEMPLATE, "enabled": TEMPLATE, "timeout": TEMPLATE,
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "places"),
    [
        (TEMPLATE, []),
        ([FORM], []),
        ([FORM | {"enabled": "on"}], ["$[0].enabled"]),
        ([FORM | {"trigger": {"partitions": {"asset": "orders", "count": 0}}}],
         ["$[0].trigger.partitions.count"]),
    ],
)  # fmt: skip
def test_the_schema_admits_templates_and_names_what_is_wrong_beside_them(
    form: object, places: list[str]
) -> None:
    """The schema with which ``dg check yaml`` and editors check a ``defs.yaml``."""
    validator = Draft202012Validator(ArcticSchedules.get_model_cls().model_json_schema())
    found = validator.iter_errors({"schedules": form})
    assert [error.json_path for error in found] == [f"$.schedules{one[1:]}" for one in places]


SOURCE = """
import dagster as dg

@dg.sensor(job_name="send")
def new_files(): ...

@dg.job
def unscheduled(): ...

@dg.asset_sensor(asset_key=dg.AssetKey("orders"), job_name="send")
def known(): ...
"""


def requests_of(sensor: str) -> str:
    return (
        f"{TYPE}ArcticSchedules\nattributes:\n  schedules: [{{name: files, "
        f"target: {{job: send}}, trigger: {{requests: {{sensor: {sensor}}}}}}}]\n"
    )


def test_a_sensor_whose_requests_a_schedule_takes_is_a_source(sandbox: DefsFolderSandbox) -> None:
    """It stays a sensor of the project; the dispatcher has it, too."""
    (sandbox.defs_folder_path / "code.py").write_text(SOURCE)
    write(sandbox, files=requests_of("new_files"), other=schedules("other"))
    with sandbox.build_all_defs() as definitions:
        repository = definitions.get_repository_def()
        names = {one.name for one in repository.sensor_defs}
        dispatcher = repository.get_sensor_def("arctic_dispatcher")
    assert names == {"arctic_dispatcher", "known", "new_files"}
    assert isinstance(dispatcher, DispatcherSensor)
    assert [source.name for source in dispatcher._sources] == ["new_files"]
    # Also of a job that no schedule of the code has: schedules of the command line may have it.
    targets = SensorSnap.from_def(dispatcher, repository).target_dict
    assert {"send", "unscheduled", "__ASSET_JOB"} <= targets.keys()


@pytest.mark.parametrize("name", ["known", "missing"])
def test_what_is_no_plain_sensor_is_no_source(sandbox: DefsFolderSandbox, name: str) -> None:
    (sandbox.defs_folder_path / "code.py").write_text(SOURCE)
    write(sandbox, files=requests_of(name))
    expected = "expected a plain @sensor in the code of defs/: one of ['new_files']"
    field = "files: schedules[0].trigger.requests.sensor"
    assert f"{field}: got '{name}', {expected}" in reason(sandbox)


def test_a_bad_field_is_named_with_file_and_line(sandbox: DefsFolderSandbox) -> None:
    """The count stands in line 6."""
    write(sandbox, good=schedules("good"), bad=schedules("bad", count="[0]"))
    said = reason(sandbox)
    path = sandbox.defs_folder_path / "bad" / "defs.yaml"
    assert f"{path}:6: schedules[0].trigger.partitions.count: got [0], expected" in said


def test_a_name_is_used_once_in_all_folders(sandbox: DefsFolderSandbox) -> None:
    write(sandbox, first=schedules("same"), second=schedules("same"))
    said = reason(sandbox)
    assert "second: schedules[0].name: got 'same', expected another name: first:" in said


def test_two_values_of_one_field_are_refused(sandbox: DefsFolderSandbox) -> None:
    freshness = f"{TYPE}ArcticFreshness\nattributes: {{interval_seconds: %s}}\n"
    write(sandbox, first=freshness % 5, second=freshness % 6)
    assert "second: interval_seconds: got 6, expected 5 as in first" in reason(sandbox)


def test_an_arctic_in_code_beside_components_is_refused(sandbox: DefsFolderSandbox) -> None:
    """Without the component, the code loads."""
    (sandbox.defs_folder_path / "code.py").write_text(
        "from arctic_orchestration import Arctic\ndefs = Arctic().definitions()\n"
    )
    assert sensors(sandbox) == ["arctic_dispatcher"]
    write(sandbox, nightly=schedules("nightly"))
    said = reason(sandbox)
    assert "code.py: got 'arctic_dispatcher', expected no Arctic(...) in code beside" in said


def test_the_page_works_as_it_is_written(tmp_path: Path) -> None:
    """Carries out docs/dg.md: its commands, and its files, read from the page."""
    text = PAGE.read_text().partition("## Rules")[0]
    bin = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path / "shop" / "src"),
        "DAGSTER_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "NO_COLOR": "1",
        "PYTHONWARNINGS": "ignore",
        "COLUMNS": "200",
    }
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    said: dict[str, str] = {}

    def run(command: str, *, fails: bool = False) -> str:
        folder = tmp_path if command.startswith("create-dagster") else tmp_path / "shop"
        done = subprocess.run(
            command.split(), cwd=folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stdout
        return done.stdout

    # A file of the page is named before its block.
    for before, language, block in re.findall(r"(.*?)```(\w*)\n(.*?)```", text, re.DOTALL):
        named = re.findall(r"`(shop/\S+?)`", before)
        if language in ("yaml", "python"):
            path = tmp_path / named[-1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)
        elif language == "sh":
            said.update({command: run(command) for command in block.splitlines()})

    assert len(said) == 4
    for name in (
        "arctic_dispatcher",
        "arctic_tasks",
        "report",
        "arctic/schedules/report_of_orders",
    ):
        assert name in said["dg list defs"].replace("/\n", "/")
    assert "validated successfully" in said["dg check yaml"]
    nightly = tmp_path / "shop/src/shop/defs/nightly/defs.yaml"
    sound = nightly.read_text()
    nightly.write_text(sound.replace("timeout:", "timeuot:"))
    assert f"nightly/defs.yaml:{line_of(nightly, 'timeuot')} " in run("dg check yaml", fails=True)
    # What a schema cannot say.
    nightly.write_text(re.sub(r"timezone: [\w/]+", "timezone: Mars", sound, count=1))
    where = f"nightly/defs.yaml:{line_of(nightly, 'Mars')}: schedules[0].trigger"
    assert re.search(f"{re.escape(where)}.*got 'Mars'", run("dg check defs", fails=True))


def line_of(file: Path, text: str) -> int:
    """The number of the line that has a text."""
    (found,) = (n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line)
    return found
