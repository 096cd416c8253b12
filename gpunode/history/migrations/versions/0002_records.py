"""What was recorded, so that a rollout stands among what changed; and when what is old was removed last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the table, and the column."""
    op.create_table(
        "gpunode_record",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("inventory_id", _NUMBER, sa.ForeignKey("gpunode_inventory.id", ondelete="CASCADE"), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("gpunode", sa.Text, nullable=False),
        sa.Column("hosts", sa.Integer, nullable=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        sa.Column("exit_code", sa.Integer, nullable=False),
        sa.Column("state", sa.Text),
    )
    op.create_index("gpunode_record_at", "gpunode_record", ["inventory_id", "at"])
    op.add_column("gpunode_inventory", sa.Column("pruned", _TIME))
