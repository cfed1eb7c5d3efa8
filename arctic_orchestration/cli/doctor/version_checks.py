"""Whether the installed versions belong together, and are tested."""

import re
from importlib import metadata

from arctic_orchestration.console.findings import Finding, bad, good, warning

#: the first version that is tested, and the first one that was not when this was written
TESTED = {
    "dagster": ("1.12.22", "1.14"),
    "pyspark": ("3.5.3", "4.4"),
    "pyiceberg": ("0.12.0", "0.13"),
    "sqlalchemy": ("2.0.30", "2.2"),
}
#: released with each version of Dagster, under the same number
_TOGETHER = ("dagster-webserver", "dagster-graphql")
#: likewise, under a number of their own: 0.29.27 is that of 1.13.27
_LIBRARIES = ("dagster-postgres", "dagster-pyspark", "dagster-k8s", "dagster-docker")
_AHEAD = 16


def versions() -> list[Finding]:
    """Compares the versions of what is installed; extras may be absent."""
    installed = {}
    for name in (*TESTED, *_TOGETHER, *_LIBRARIES):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found = ", ".join(f"{name} {version}" for name, version in installed.items())
    major, minor, patch = _numbers(installed["dagster"])
    wanted = dict.fromkeys(_TOGETHER, installed["dagster"])
    wanted |= dict.fromkeys(_LIBRARIES, f"{major - 1}.{minor + _AHEAD}.{patch}")
    pins = [
        f"{name}=={version}"
        for name, version in wanted.items()
        if installed.get(name, version) != version
    ]
    newer = []
    for name in TESTED.keys() & installed.keys():
        first, untested = TESTED[name]
        if _numbers(installed[name]) < _numbers(first):
            pins.append(f"{name}>={first}")
        elif _numbers(installed[name]) >= _numbers(untested):
            newer.append(f"{name} before {untested}")
    if pins:
        advice = f"pip install {' '.join(repr(pin) for pin in sorted(pins))}"
        return [bad("versions", found, advice)]
    if newer:
        older = " and ".join(sorted(newer))
        advice = f"newer than what is tested: if something fails, install {older}"
        return [warning("versions", found, advice)]
    return [good("versions", found)]


def _numbers(version: str) -> tuple[int, int, int]:
    """Returns the release; what follows it, as of a pre-release, is left out."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:3]]
    major, minor, patch = (*numbers, 0, 0)[:3]
    return major, minor, patch
