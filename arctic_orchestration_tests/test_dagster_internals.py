"""What the package uses of Dagster's private parts exists, and is used through one file.

A new version of Dagster fails here first: a table names what is used of each import.
"""

import ast
import dis
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster
import pytest

import arctic_orchestration
from arctic_orchestration_tests.used_of_dagster import PRIVATE_PARTS, USED

#: Not imported at the head: then the first name that is missing would hide the others.
FILE = Path(arctic_orchestration.__file__).parent / "dagster_internals.py"
OTHERS = sorted(set(FILE.parent.rglob("*.py")) - {FILE})

#: Of the above, what 1.12 lacks; the file has another way to the same for it.
SINCE_1_13 = {
    "get_existing_dynamic_partitions(partitions_def_name partition_keys)",
    "_store_asset_event(conn event event_id)",
    "create_pg_engine(postgres_url token_provider)",
    "_token_provider",
}
IS_1_12 = dagster.__version__.startswith("1.12.")


def is_private(module: str) -> bool:
    """Whether a module is Dagster's, or of one of its packages, and not public."""
    package, *parts = module.split(".")
    if package == "dagster":
        return any(part.startswith("_") for part in parts)
    return package == "dagster_shared" or (package.startswith("dagster_") and bool(parts))


def private_imports(file: Path) -> Iterator[tuple[str, str]]:
    """The imports of private names in a file, anywhere in it: modules, and names in them."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((name.name, "") for name in node.names if is_private(name.name))
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for name in node.names:
                of_dagster = node.module.startswith("dagster")
                if is_private(node.module) or (of_dagster and name.name.startswith("_")):
                    yield node.module, name.name


IMPORTS = sorted(set(private_imports(FILE)))


@pytest.fixture
def internals() -> Any:
    """The file, imported."""
    return importlib.import_module("arctic_orchestration.dagster_internals")


def imported(module: str, name: str) -> Any:
    """What ``from module import name`` binds."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a call, without the object or class itself."""
    # The constructor of a record hides the one with its fields, that of its base.
    hidden = [vars(base).get("__new__") for base in getattr(function, "__mro__", ())]
    for call in (function, *filter(None, hidden)):
        found = inspect.signature(call).parameters
        if "args" not in found:
            break
    return {name: each for name, each in found.items() if name not in ("self", "cls", "_cls")}


def attributes(owner: Any) -> set[str]:
    """The attributes of a module or class and of its instances, also those set by methods."""
    found = set(dir(owner))
    for base in getattr(owner, "__mro__", ()):
        found.update(vars(base).get("__annotations__", ()))
        for method in vars(base).values():
            code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
            steps = dis.get_instructions(code) if code else ()
            found.update(step.argval for step in steps if step.opname == "STORE_ATTR")
    return found


def missing(owner: Any, used: str) -> str | None:
    """What of the use is not there, or None."""
    if IS_1_12 and used in SINCE_1_13:
        return None
    name, called, listed = used.rstrip(")").partition("(")
    if name and name not in attributes(owner):
        return f"has no {name}"
    if not called:
        return None
    wanted, others = listed.replace("*", "").split(), "*" in listed
    taken = parameters(getattr(owner, name) if name else owner)
    lacking = [each for each in wanted if each not in taken]
    required = [
        each.name
        for each in taken.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if lacking or not (others or set(required) <= set(wanted)):
        return f"{name or 'it'} is called with {wanted}, and takes {list(taken)}"
    if [each for each in taken if each in wanted] != wanted:
        return f"{name or 'it'} takes {list(taken)}, in another order than {wanted}"
    return None


@pytest.mark.parametrize(("module", "name"), IMPORTS, ids=[name for _, name in IMPORTS])
def test_an_import_has_what_is_used_of_it(module: str, name: str) -> None:
    """The name exists there, with the attributes, members and parameters of the table."""
    owner = imported(module, name)
    assert name in USED, f"{name}: what is used of it is missing in the table"
    problems = [problem for used in USED[name] if (problem := missing(owner, used))]
    assert not problems, f"{module}.{name}: {'; '.join(problems)}"


def test_the_table_has_imported_names_alone() -> None:
    assert sorted(USED) == sorted({name for _, name in IMPORTS})


@pytest.mark.parametrize("path", sorted(PRIVATE_PARTS))
def test_a_public_class_has_the_private_parts_that_are_used(path: str) -> None:
    module, _, name = path.rpartition(".")
    owner = imported(module, name)
    problems = [problem for used in PRIVATE_PARTS[path] if (problem := missing(owner, used))]
    assert not problems, f"{path}: {'; '.join(problems)}"


def test_a_use_that_is_not_there_is_reported() -> None:
    """The control: an attribute, a parameter, a new required parameter, another order."""

    class Owner:
        def __init__(self) -> None:
            self._kept = 1

        def method(self, first: int, second: int, third: int = 0) -> int:
            return first + second + third

    for used in ("_kept", "method(first second)", "method(first second third)", "method(first *)"):
        assert missing(Owner, used) is None
    for used in ("_lost", "lost()", "method(first)", "method(first second fourth)"):
        assert missing(Owner, used) is not None
    assert "another order" in str(missing(Owner, "method(second first)"))


def test_modules_and_functions_that_are_named_by_strings(internals: Any) -> None:
    for module in (*internals.MODULES_OF_RUNS, "dagster._daemon.cli"):
        assert find_spec(module) is not None, module
    for module in internals._POSTGRES_STORAGES:
        factory = "create_engine" if IS_1_12 else "create_pg_engine"
        assert callable(imported(module, factory)), module
    queue_daemon = importlib.import_module(internals._QUEUE_DAEMON)
    loop = queue_daemon.QueuedRunCoordinatorDaemon
    assert vars(loop)[internals.BEGINS_PASS].__globals__ is vars(queue_daemon)
    for owner, name in internals.daemon_functions().values():
        assert callable(getattr(owner, name)), name


def test_the_lists_of_statuses_are_those_of_dagster(internals: Any) -> None:
    dagster_run = importlib.import_module("dagster._core.storage.dagster_run")
    counted = getattr(dagster_run, "ACTIVE_RUN_STATUSES", dagster_run.IN_PROGRESS_RUN_STATUSES)
    assert counted == internals._TAKE_POOLS
    for name in ("FINISHED_STATUSES", "IN_PROGRESS_RUN_STATUSES"):
        assert set(getattr(internals, name)) == set(getattr(dagster_run, name)), name


def test_the_names_are_those_that_are_imported_for_types(internals: Any) -> None:
    """Each has the module from which mypy imports it; another name is an AttributeError."""
    checked = next(node for node in ast.parse(FILE.read_text()).body if isinstance(node, ast.If))
    assert ast.unparse(checked.test) == "TYPE_CHECKING"
    assert {
        name.asname or name.name: f"{node.module}:{name.name}" if name.asname else node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    } == {**internals._EAGER, **internals._LAZY}
    with pytest.raises(AttributeError, match="Sensorsnap"):
        _ = internals.Sensorsnap


#: A Dagster of which all private modules but those that it imports itself are gone, or changed.
_OF_THE_FUTURE = """
import sys, dagster
for name in list(sys.modules):
    module = sys.modules[name]
    if name.startswith("dagster._") and name != "dagster._utils" and module is not None:
        sys.modules[name] = type(sys)(name)
        sys.modules[name].__path__ = []
from arctic_orchestration import Arctic, Schedule, dagster_internals, on
from arctic_orchestration.errors import ConfigurationError
assert type(dagster_internals.RunLauncher).__name__ == "_Absent", dagster_internals.RunLauncher
Schedule(name="s", target="work", trigger=on.cron("0 4 * * *"))
import arctic_orchestration.cli.main, arctic_orchestration.coordinator
import arctic_orchestration.run_launcher.launcher
try:
    dagster_internals.create_execution_plan(None)
except ConfigurationError as error:
    print(error)
"""


def test_a_dagster_without_its_private_parts_is_imported_and_refused_in_use() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _OF_THE_FUTURE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"Dagster {dagster.__version__} has no dagster._core.execution.api." in done.stdout
    assert "arctic doctor" in done.stdout


def test_every_name_is_exported_and_used(internals: Any) -> None:
    text = "\n".join(file.read_text() for file in OTHERS)
    body = ast.parse(FILE.read_text()).body
    own = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        own.update(target.id for target in targets if isinstance(target, ast.Name))
    for name in {*internals.__all__, *(name for name in own if not name.startswith("_"))}:
        assert hasattr(internals, name), name
        assert re.search(rf"\b{name}\b", text), f"{name} is not used"


def test_importing_the_file_loads_what_dagster_loads_alone() -> None:
    """What ``import dagster`` has not loaded is loaded on use."""
    program = (
        "import sys, dagster; before = set(sys.modules)\n"
        "import arctic_orchestration.dagster_internals\n"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    assert {name.partition(".")[0] for name in done.stdout.split()} == {"arctic_orchestration"}


def test_no_other_file_imports_private_modules_of_dagster() -> None:
    """Neither by a statement, nor by a string that names one."""
    dotted, found = re.compile(r"dagster\w*(\.\w+)*\._[\w.]+"), []
    for file in OTHERS:
        found += [(file, f"{module} {name}") for module, name in private_imports(file)]
        for node in ast.walk(ast.parse(file.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and dotted.fullmatch(text):
                found.append((file, text))
    assert found == []


def test_private_imports_are_found_in_any_form(tmp_path: Path) -> None:
    """The control: a statement of each form, one of them inside a function."""
    file = tmp_path / "file.py"
    file.write_text(
        "import dagster as dg, dagster._core.errors\n"
        "from dagster import AssetKey, _time\n"
        "from dagster_shared import serdes\n"
        "from dagster_postgres import PostgresRunStorage\n"
        "def load():\n    from dagster_postgres.utils import create_pg_engine\n"
    )
    assert sorted(private_imports(file)) == [
        ("dagster", "_time"),
        ("dagster._core.errors", ""),
        ("dagster_postgres.utils", "create_pg_engine"),
        ("dagster_shared", "serdes"),
    ]


def test_no_other_file_uses_private_attributes_of_dagster() -> None:
    """Each that is used outside of the lake, which uses Spark's, is one of the package itself."""
    of_python = "_asdict _exit _fields _make _registry _replace _run_exitfuncs _shutdown"
    of_sqlalchemy = "_dec_overflow"
    ours, used = {*of_python.split(), *of_sqlalchemy.split()}, []
    for file in OTHERS:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                ours.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                ours.add(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, ast.Attribute) and "lake" not in file.parts:
                used.append((file, node.lineno, node.attr))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr"):
                name = node.args[1] if len(node.args) > 1 else None
                if isinstance(name, ast.Constant) and "lake" not in file.parts:
                    used.append((file, node.lineno, str(name.value)))
    private = re.compile("_[a-z]")
    assert [each for each in used if private.match(each[2]) and each[2] not in ours] == []


@pytest.mark.parametrize(
    "path",
    [
        "compaction.dagster.sensor.CompactionSensor",
        "freshness.dagster.sensor.TaskSensor",
        "run_launcher.launcher.ArcticRunLauncher",
        "run_launcher.run_worker.RunWorkerInstance",
        "run_queue.dagster.coordinator.ArcticRunCoordinator",
        "schedules.dagster.dispatcher.DispatcherSensor",
    ],
)
def test_no_subclass_shares_a_private_attribute_with_its_base(path: str) -> None:
    """One that it sets would replace Dagster's; one that it reads may be gone tomorrow."""
    module, _, name = path.rpartition(".")
    ours = imported(f"arctic_orchestration.{module}", name)
    shared = re.compile(r"\bself\.(_[a-z]\w*)|def (_[a-z]\w*)")
    own = {name for found in shared.findall(inspect.getsource(ours)) for name in found if name}
    bases = [base for base in ours.__mro__ if base.__module__.startswith("dagster.")]
    assert bases
    assert own & {name for base in bases for name in attributes(base)} == set()


def test_the_classes_of_an_instance_are_imported_as_far_as_they_exist(tmp_path: Path) -> None:
    process = (
        "import sys\n"
        "from dagster._core.instance.ref import InstanceRef\n"
        "from arctic_orchestration.dagster_internals import import_instance_classes\n"
        "reference = InstanceRef.from_dir(sys.argv[1])\n"
        "assert 'colorsys' not in sys.modules\n"
        "import_instance_classes(reference)\n"
        "assert 'colorsys' in sys.modules and 'not_here' not in sys.modules\n"
    )
    (tmp_path / "dagster.yaml").write_text(
        "run_coordinator: {module: colorsys, class: Any}\n"
        "run_launcher: {module: not_here, class: Launcher}\n"
    )
    subprocess.run([sys.executable, "-c", process, str(tmp_path)], check=True)
