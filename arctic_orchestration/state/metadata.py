"""What all tables of the state database share: their register, and types of keys."""

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

#: what :func:`arctic_orchestration.identifiers.new_id` makes
Id = sa.String(26)
#: counted by the database
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
