"""``arctic doctor`` about S3: what the catalog's properties lack, found without a request."""

from pathlib import Path

import pytest

from arctic_orchestration.cli.doctor.store_checks import object_store

COMPLETE = {
    "WAREHOUSE": "s3://lake/tables",
    "S3__REGION": "us-east-1",
    "S3__ACCESS_KEY_ID": "key",
    "S3__SECRET_ACCESS_KEY": "secret",
}


@pytest.fixture(autouse=True)
def _nothing_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def found(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> list[tuple[str, str]]:
    with monkeypatch.context() as patch:
        for key, value in properties.items():
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{key}", value)
        return [(one.status, one.found) for one in object_store()]


def test_a_lake_elsewhere_has_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, {}) == []
    assert found(monkeypatch, {"URI": "sqlite:////tmp/x.db", "WAREHOUSE": "/tmp"}) == []


def test_what_is_complete_says_which_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ((status, text),) = found(monkeypatch, COMPLETE)
    assert status == "ok"
    assert text.startswith("S3; files pass through Arrow in Spark's workers, unless hadoop-aws")


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        (["S3__REGION"], "s3.region is missing"),
        (["S3__SECRET_ACCESS_KEY"], "s3.secret-access-key is missing beside the other one"),
        (["S3__ACCESS_KEY_ID", "S3__SECRET_ACCESS_KEY"], "no credentials"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: list[str], text: str
) -> None:
    some = {key: value for key, value in COMPLETE.items() if key not in missing}
    ((status, reason),) = found(monkeypatch, some)
    assert status == "warning"
    assert reason.startswith(text)
    # A REST catalog gives them with each table.
    vended = found(monkeypatch, some | {"URI": "http://127.0.0.1:1"})
    still_wrong = missing == ["S3__SECRET_ACCESS_KEY"]
    assert ("warning" in {one for one, _ in vended}) == still_wrong


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "secret" not in str(found(monkeypatch, COMPLETE))
