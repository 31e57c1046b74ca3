"""Pagination of lists: `limit` and `cursor`, and the next page's address in the `Link` header (RFC 8288). Responses
that are objects (jobs, audit entries) take the same two parameters and have the cursor in `next`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from headway.schemas.page_size import DEFAULT_ROWS, MAX_ROWS
from headway.services.cursors import decode_cursor, encode_cursor, invalid_cursor

T = TypeVar("T")
DEEP = 10_000  # the most rows of a table that a list goes back

ANY: frozenset[str] = frozenset()
Words = Annotated[frozenset[str], Query(max_length=50, description="one of these")]
States = Annotated[frozenset[str], Query(alias="state", max_length=50, description="one of these")]
Text = Annotated[str, Query(max_length=200, description="text to find, in any case")]
Cursor = Annotated[str, Query(max_length=400, pattern=r"^[\w-]*$", description="`next` of the previous page")]


class Paging:
    """The requested page. `cut` returns its rows and sets the address of the next page in the response."""

    def __init__(self, request: Request, response: Response, limit: int, cursor: str) -> None:
        self._request = request
        self._response = response
        self._limit = limit
        self._cursor = cursor

    @property
    def limit(self) -> int:
        """Returns the largest number of rows that the page may have."""
        return self._limit

    def place(self, *kinds: type) -> tuple[Any, ...] | None:
        """Returns the key of the last row of the previous page, with values of these types; None for the first page."""
        return decode_cursor(self._cursor, *kinds) if self._cursor else None

    def cut(self, rows: Iterable[T], key: Callable[[T], tuple[Any, ...]], *, newest: bool = False) -> list[T]:
        """Returns the rows of the page, ordered by `key`, which must be unique; with `newest` the largest first. A
        cursor is the key of the previous page's last row, so if the list changes in between, no remaining row is
        lost or repeated."""
        found = sorted(rows, key=key, reverse=newest)
        if self._cursor:
            found = self._behind(found, key, newest)
        shown = found[: self._limit]
        if len(shown) < len(found):
            self._link(key(shown[-1]))
        return shown

    def _behind(self, rows: list[T], key: Callable[[T], tuple[Any, ...]], newest: bool) -> list[T]:
        place = decode_cursor(self._cursor)
        try:
            return [row for row in rows if (key(row) < place if newest else key(row) > place)]
        except TypeError:
            raise invalid_cursor() from None

    def _link(self, place: tuple[Any, ...]) -> None:
        cursor = encode_cursor(place)
        words = [(name, value) for name, value in self._request.query_params.multi_items() if name != "cursor"]
        address = f"{self._request.url.path}?{urlencode([*words, ('cursor', cursor)])}"
        self._response.headers["link"] = f'<{address}>; rel="next"'


async def _paging(
    request: Request,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="number of rows per page")] = DEFAULT_ROWS,
    cursor: Annotated[str, Query(max_length=2000, description="from the `Link` header of the previous page")] = "",
) -> Paging:
    return Paging(request, response, limit, cursor)


Page = Annotated[Paging, Depends(_paging)]


def fits(value: str, allowed: frozenset[str]) -> bool:
    """Returns whether the value is one of `allowed`; an empty set accepts every value."""
    return not allowed or value in allowed


def contains(text: str, *values: str) -> bool:
    """Returns whether one of the values contains the text, ignoring case."""
    return not text or any(text.casefold() in value.casefold() for value in values)
