"""Tables fit the terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.cli.output import tables
from headway.cli.output.terminal import Terminal, display_width


@given(
    st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), max_size=5),
    st.integers(min_value=30, max_value=100),
)
def test_table_cells_with_any_text_fit_the_width_on_one_line(rows: list[list[str]], width: int) -> None:
    terminal = Terminal(colours=False, width=width, unicode=True)
    columns = [
        tables.Column("A", shrink=True),
        tables.Column("B", shrink=True, drop_order=1),
        tables.Column("C", shrink=True),
    ]
    lines = tables.table_lines(columns, rows, terminal)
    assert len(lines) == len(rows) + 1
    assert all(display_width(line) <= width and line.isprintable() for line in lines)
