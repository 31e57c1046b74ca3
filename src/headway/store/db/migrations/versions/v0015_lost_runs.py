"""Indexes of the runs whose work was done again and of the jobs that are notebooks: reports look at all of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_LOST = sa.text("lost_s > 0")
_NOTEBOOK = sa.text("kind = 'notebook'")


def upgrade() -> None:
    op.create_index(
        "ix_runs_lost",
        "runs",
        ["kind", "start", "end", "state", "lost_s", "units", "gpus", "job"],
        sqlite_where=_LOST,
        postgresql_where=_LOST,
    )
    op.create_index(
        "ix_jobs_notebooks", "jobs", ["cluster", "job_id", "at"], sqlite_where=_NOTEBOOK, postgresql_where=_NOTEBOOK
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_notebooks", "jobs")
    op.drop_index("ix_runs_lost", "runs")
