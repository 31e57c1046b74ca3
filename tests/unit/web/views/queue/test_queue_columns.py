"""Every field of the queue has a title, and the columns shown by default exist."""

from headway.services.queue.queue_fields import FIELDS
from headway.web.views.queue.queue_columns import COLUMNS, DEFAULT_COLUMNS


def test_every_field_is_a_column() -> None:
    assert [one.key for one in FIELDS] == list(COLUMNS)
    assert [one.field for one in COLUMNS.values()] == list(FIELDS)
    assert set(DEFAULT_COLUMNS) <= COLUMNS.keys()
    assert all(one.title for one in COLUMNS.values())
