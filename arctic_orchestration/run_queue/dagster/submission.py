"""Reads the facts for rules from a run that is being submitted."""

import logging

from dagster import AssetKey, DagsterRun, SubmitRunContext

from arctic_orchestration.run_queue.rules import RunFacts

_log = logging.getLogger(__name__)


def facts_of(context: SubmitRunContext) -> RunFacts:
    """Returns the run's job, code location, assets and tags, and the tags of its assets.

    If the code location does not answer, the tags of the assets are missing; the run is submitted.
    """
    run = context.dagster_run
    origin = run.remote_job_origin
    selected = sorted(key.to_user_string() for key in run.asset_selection or ())
    try:
        asset_tags = _asset_tags(context, run)
    except Exception:
        _log.exception("the tags of the assets of run %s are not known", run.run_id)
        asset_tags = {}
    return RunFacts(
        job=run.job_name,
        location=origin.location_name if origin else None,
        assets=tuple(selected or sorted(asset_tags)),
        tags=run.tags,
        asset_tags=tuple(tags for tags in asset_tags.values() if tags),
    )


def _asset_tags(context: SubmitRunContext, run: DagsterRun) -> dict[str, dict[str, str]]:
    """Returns the tags of each asset that the run makes."""
    origin = run.remote_job_origin
    if origin is None:
        return {}
    repository_origin = origin.repository_origin
    location = context.workspace.get_code_location(origin.location_name)
    repository = location.get_repository(repository_origin.repository_name)
    nodes = repository.get_asset_node_snaps(run.job_name)
    selection: frozenset[AssetKey] | None = (
        frozenset(run.asset_selection) if run.asset_selection is not None else None
    )
    return {
        node.asset_key.to_user_string(): dict(node.tags or {})
        for node in nodes
        if selection is None or node.asset_key in selection
    }
