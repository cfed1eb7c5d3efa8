"""The shared base of all tables of the state database: their metadata, and key types."""

from functools import cache

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

#: the result of :func:`arctic_orchestration.identifiers.new_id`
Id = sa.String(26)
#: assigned by the database
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def create_tables(connection: sa.Connection) -> None:
    """Creates all tables that are imported, which must not be there, with their indexes."""
    for statement in _statements(connection.engine.url.drivername, tuple(metadata.tables)):
        connection.exec_driver_sql(statement)


@cache
def _statements(driver: str, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Statements that create the tables; compiling them takes longer than executing them."""
    found: list[sa.schema.ExecutableDDLElement] = []
    engine = sa.create_mock_engine(f"{driver}://", lambda ddl, *_, **__: found.append(ddl))
    chosen = [metadata.tables[name] for name in tables]
    metadata.create_all(engine, chosen, checkfirst=False)
    return tuple(str(ddl.compile(dialect=engine.dialect)) for ddl in found)
