"""The file of channels: its defaults, and what is refused."""

from pathlib import Path

import pytest

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.notifications.channels import read_channels, valid_channels
from arctic_orchestration.notifications.notifier import reach
from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration_tests.schedules.notifications.post import HOUR


@pytest.mark.parametrize(
    ("text", "field", "value", "expected"),
    [
        ("channels: 5", "channels", 5, "a list"),
        ("other: 1", "channels", None, "a value: the field is required"),
        ("channels: ['json://u:secret@h']", "channels[0]", "json://…", "a mapping"),
        ("channels: [{}]", "channels[0].url", None, "a value: the field is required"),
        ("channels: [{url: 'nope://secret'}]", "channels[0].url", "nope://…", "apprise knows"),
        ("channels: [{url: secret}]", "channels[0].url", "?://…", "a URL that apprise knows"),
        (
            "channels: [{url: 'json://${NOT_SET_ANYWHERE}'}]",
            "channels[0].url",
            "${NOT_SET_ANYWHERE}",
            "an environment variable that is set",
        ),
        (
            "channels: [{url: 'json://a', events: [{run_failed: }]}]",
            "channels[0].events",
            "a list",
            "a list of job_discarded, job_timed_out, launch_failed, run_failed, "
            "run_canceled, parents_stale, quarantined, skipped",
        ),
        (
            "channels: [{url: 'json://a', events: [job_lost]}]",
            "channels[0].events",
            "a list",
            "a list of job_discarded, job_timed_out, launch_failed, run_failed, "
            "run_canceled, parents_stale, quarantined, skipped",
        ),
        ("channels: [{url: 'json://a', tags: ops}]", "channels[0].tags", "ops", "a mapping"),
        (
            "channels: [{url: 'json://a', limit: {count: 0}}]",
            "channels[0].limit.count",
            0,
            "at least 1",
        ),
        (
            "channels: [{url: 'json://a', limit: {per: 60}}]",
            "channels[0].limit.per",
            60,
            "a duration such as",
        ),
        (
            "channels: [{url: 'json://a', limit: {per: 0s}}]",
            "channels[0].limit.per",
            "0s",
            "a duration above zero",
        ),
        (
            "channels: [{url: 'json://a', limit: {per: 25h}}]",
            "channels[0].limit.per",
            "25h",
            "a duration of at most 1d",
        ),
        ("channels: [{url: 'json://a', to: ops}]", "channels[0].to", "ops", "no such field"),
        (
            "channels: [{url: 'json://u:secret@h'}, {url: 'json://u:secret@h'}]",
            "channels[1].url",
            "json://…",
            "a channel that is not listed twice",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_field_and_shows_no_secret(
    text: str, field: str, value: object, expected: str, tmp_path: Path
) -> None:
    """What stands in a URL is not for logs."""
    path = tmp_path / "n.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refusal:
        read_channels(path, {})
    assert (refusal.value.field, refusal.value.value) == (field, value)
    assert expected in refusal.value.expected
    assert "secret" not in str(refusal.value)


def test_the_channels_beside_wrong_ones_are_valid(tmp_path: Path) -> None:
    """Each wrong one is named by its field; of two that are the same the first one counts."""
    path = tmp_path / "n.yaml"
    path.write_text(
        "channels:\n"
        "- url: json://u:${NOT_SET_ANYWHERE}@h\n"
        "- url: json://a\n"
        "- url: nope://secret\n"
        "- {url: 'json://secret', events: [job_lost], to: ops}\n"
        "- url: json://a\n"
        "- json://u:secret@h\n"
        "- {url: 'json://b', limit: {per: 2d}}\n"
        "- url: json://c\n"
    )
    channels, problems = valid_channels(path, {})
    assert [channel.url for channel in channels] == ["json://a", "json://c"]
    assert [(problem.field, problem.value) for problem in problems] == [
        ("channels[0].url", "${NOT_SET_ANYWHERE}"),
        ("channels[2].url", "nope://…"),
        ("channels[3].events", "a list"),
        ("channels[3].to", "ops"),
        ("channels[4].url", "json://…"),
        ("channels[5]", "json://…"),
        ("channels[6].limit.per", "2d"),
    ]
    with pytest.raises(InvalidDefinition) as refusal:
        read_channels(path, {})
    assert list(map(str, refusal.value.problems)) == list(map(str, problems))
    assert "secret" not in str(refusal.value)


def test_a_file_that_is_no_yaml_is_refused_by_line(tmp_path: Path) -> None:
    """And what stands there is not repeated."""
    path = tmp_path / "n.yaml"
    path.write_text("channels:\n- url: [json://u:secret@h\n")
    with pytest.raises(InvalidInput) as refusal:
        read_channels(path, {})
    assert refusal.value.field == "ARCTIC_NOTIFICATIONS"
    assert "it is no YAML (line 3)" in refusal.value.expected
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[]", "json://u:secret@h"])
def test_a_file_of_anything_but_channels_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "n.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refusal:
        read_channels(path, {})
    assert refusal.value.field == "ARCTIC_NOTIFICATIONS"
    assert "it is no mapping with the field channels" in refusal.value.expected
    assert "n.yaml" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_everything_about_a_channel_but_its_url_has_a_default(tmp_path: Path) -> None:
    """All events, any schedule, ten messages an hour."""
    path = tmp_path / "n.yaml"
    path.write_text("channels: [{url: 'json://${HOST}/x'}]")
    (channel,) = read_channels(path, {"HOST": "h"})
    assert channel.address == "json://h/x"
    assert channel.events == tuple(Notice)
    assert (channel.tags, channel.limit.count, channel.limit.per) == ({}, 10, HOUR)
    assert type(reach(channel)).__name__ == "AppriseSender"


def _aliases(form: str) -> str:
    """Forty levels, each with its predecessor ten times: 10^40 values."""
    lines = ["a0: &a0 {k: [v]}"]
    for level in range(1, 41):
        below = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {form.format(below)}")
    return "\n".join([*lines, "channels: *a40"])


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "text",
    [
        _aliases("[{}]"),
        _aliases("{{<<: [{}]}}"),
        "channels: &a [*a]",
        "channels: &a {<<: *a}",
        "channels:\n" + "\n".join(" " * level + "a:" for level in range(1, 3000)),
    ],
    ids=["lists", "merges", "a list in itself", "a merge of itself", "deep"],
)
def test_a_file_that_aliases_make_too_large_is_refused(tmp_path: Path, text: str) -> None:
    """In a moment: it is also read by a thread of the code server, which nobody could end."""
    path = tmp_path / "n.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="at most 2,000,000 values, 100 levels deep") as refusal:
        read_channels(path, {})
    assert refusal.value.field == "ARCTIC_NOTIFICATIONS"
