"""What Alembic runs to bring a history's tables to another revision: within the transaction of whoever asks for it."""

from __future__ import annotations

from alembic import context

from gpunode.history.tables import TABLES, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=TABLES,
    version_table=VERSION_TABLE,
    # SQLite's, too: all revisions, or none.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
