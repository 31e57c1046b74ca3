import pytest

from headway.errors import HeadwayError
from headway.schemas.base import ErrorOut


@pytest.mark.parametrize(
    ("message", "line"),
    [("it failed\nmore", "it failed"), ("it failed", "it failed"), ("", "error"), ("\nmore", "more")],
)
def test_first_line_of_an_error(message: str, line: str) -> None:
    assert HeadwayError(message).first_line == line
    assert ErrorOut(kind="error", message=message).first_line == line
