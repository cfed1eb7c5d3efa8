"""What ``arctic doctor`` says about the versions of other packages."""

from importlib import metadata

import pytest

from arctic_orchestration.cli.doctor.version_checks import versions
from arctic_orchestration.console.findings import BAD, GOOD, WARNING

TODAY = {
    "dagster": "1.13.27",
    "dagster-webserver": "1.13.27",
    "dagster-postgres": "0.29.27",
    "pyspark": "4.3.0",
    "sqlalchemy": "2.1.9",
}
OLDEST = {"dagster": "1.12.22", "dagster-pyspark": "0.28.22", "pyspark": "3.5.3"}
NEXT = {"dagster": "1.14.0", "dagster-webserver": "1.14.0", "dagster-postgres": "0.30.0"}


@pytest.mark.parametrize(
    ("installed", "status", "advice"),
    [
        (TODAY, GOOD, ""),
        (OLDEST, GOOD, ""),
        ({"dagster": "1.13.27"}, GOOD, ""),
        (
            NEXT,
            WARNING,
            "newer than what is tested: if something fails, install dagster before 1.14",
        ),
        (
            {**TODAY, "pyspark": "5.0.0rc1", "dagster-webserver": "1.13.27"},
            WARNING,
            "newer than what is tested: if something fails, install pyspark before 4.4",
        ),
        (
            {**TODAY, "dagster-postgres": "0.29.26", "dagster-webserver": "1.13.28"},
            BAD,
            "pip install 'dagster-postgres==0.29.27' 'dagster-webserver==1.13.27'",
        ),
        ({"dagster": "1.12.21"}, BAD, "pip install 'dagster>=1.12.22'"),
        ({**TODAY, "sqlalchemy": "2.0.9"}, BAD, "pip install 'sqlalchemy>=2.0.30'"),
    ],
)
def test_versions(
    installed: dict[str, str], status: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extras may be absent; the family has to match; what is newer is only named."""

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    (finding,) = versions()
    assert (finding.check, finding.status, finding.advice) == ("versions", status, advice)
    assert all(f"{name} {number}" in finding.found for name, number in installed.items())
