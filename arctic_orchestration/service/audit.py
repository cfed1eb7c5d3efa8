"""``/audit``: the changes that people made."""

from fastapi import APIRouter

from arctic_orchestration.service import documents, paging
from arctic_orchestration.service.access import AuditReader
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import Text
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.state import audit
from arctic_orchestration.state.audit import AuditDocument

router = APIRouter(tags=["audit"])


@router.get("/audit")
def list_changes(
    service: ServiceOfApp,
    caller: AuditReader,
    feature: Text = None,
    subject: Text = None,
    actor: Text = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.AuditPage:
    """List changes in this cluster, newest first, by commands and over this API; for 400 days."""
    # A record may be about anything, so a limited scope admits none.
    caller.check()
    begin = paging.values(cursor, int)
    with service.database.read() as tx:
        read = audit.records(
            tx,
            feature=feature,
            subject=subject,
            actor=actor,
            cluster=service.settings.cluster,
            below=begin[0] if begin is not None else None,
            limit=limit + 1,
        )
    shown, following = paging.page(read, limit, lambda last: [last.number])
    return documents.AuditPage.model_validate(
        {"records": AuditDocument.from_records(shown), "next_cursor": following}
    )
