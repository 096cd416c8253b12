"""Inventories, hosts, and how long a finding of a host was so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "gpunode_inventory",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
    )
    op.create_table(
        "gpunode_host",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("inventory_id", _NUMBER, sa.ForeignKey("gpunode_inventory.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("first", _TIME, nullable=False),
        sa.Column("seen", _TIME, nullable=False),
        *(sa.Column(name, _TIME) for name in ("answered", "understood", "judged")),
        sa.Column("late", _TIME),
        sa.Column("gone", _TIME),
        sa.UniqueConstraint("inventory_id", "name", name="gpunode_host_name"),
    )
    op.create_table(
        "gpunode_finding",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("host_id", _NUMBER, sa.ForeignKey("gpunode_host.id", ondelete="CASCADE"), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("component", "what", "code", "class")),
        *(sa.Column(name, sa.Text) for name in ("actual", "desired", "cause", "remedy")),
        sa.Column("not_yet", _TIME),
        sa.Column("begun", _TIME, nullable=False),
        sa.Column("last", _TIME, nullable=False),
        sa.Column("ended", _TIME),
        sa.Column("ending", sa.Text),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("last_good", _TIME),
        sa.Column("told_by", sa.Text, nullable=False),
        sa.Column("ended_by", sa.Text),
    )
    op.create_index("gpunode_finding_host", "gpunode_finding", ["host_id", "ended"])
    op.create_index("gpunode_finding_begun", "gpunode_finding", ["begun"])
    op.create_index("gpunode_finding_ended", "gpunode_finding", ["ended"])
