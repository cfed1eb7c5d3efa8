"""How far the adoptions of a cluster have come."""

import sqlalchemy as sa

from arctic_orchestration.state.adoption_tables import adoptions
from arctic_orchestration.state.tables import locations


def steps(tx: sa.Connection, cluster: str) -> dict[tuple[str, str], str]:
    """Returns the last step of each adoption, by owner of the location and Dagster's name."""
    query = (
        sa.select(locations.c.owner, adoptions.c.name, adoptions.c.step)
        .join(adoptions, adoptions.c.location_id == locations.c.id)
        .where(locations.c.cluster == cluster)
    )
    return {(row.owner or "", row.name): row.step for row in tx.execute(query)}
