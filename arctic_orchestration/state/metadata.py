"""The shared base of all tables of the state database: their metadata, and key types."""

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
