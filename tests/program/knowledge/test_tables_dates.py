from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.models.rules.table_bounds import date_spans

TODAY = date(2026, 11, 14)


@pytest.mark.parametrize(
    ("text", "first", "stop"),
    [
        ("in October", "2026-10-01", "2026-11-01"),
        ("in December", "2025-12-01", "2026-01-01"),
        ("since August", "2026-08-01", None),
        ("after August 2025", "2025-09-01", None),
        ("before 3 May 2026", None, "2026-05-03"),
        ("until the end of June 2026", None, "2026-07-01"),
        ("in Q3 2025", "2025-07-01", "2025-10-01"),
        ("the first quarter", "2026-01-01", "2026-04-01"),
        ("in the second half of 2025", "2025-07-01", "2026-01-01"),
        ("between March and May 2025", "2025-03-01", "2025-06-01"),
        ("from 1 May to 14 May", "2026-05-01", "2026-05-15"),
        ("on 2026-02-28", "2026-02-28", "2026-03-01"),
        ("May 4th, 2024", "2024-05-04", "2024-05-05"),
        ("last month", "2026-10-01", "2026-11-01"),
        ("this year", "2026-01-01", "2027-01-01"),
        ("in the last 30 days", "2026-10-16", "2026-11-15"),
        ("from August 2026 onwards", "2026-08-01", None),
        ("in 2024", "2024-01-01", "2025-01-01"),
    ],
)
def test_dates_in_words_are_ranges_of_days(text: str, first: str | None, stop: str | None) -> None:
    (found,) = date_spans(text, TODAY)
    assert (found.first and found.first.isoformat(), found.stop and found.stop.isoformat()) == (first, stop)


@pytest.mark.parametrize("text", ["may I march in?", "on 2026-02-30", "31 June", "the 2nd place", "room 2050b"])
def test_what_is_no_date_is_none(text: str) -> None:
    assert date_spans(text, TODAY) == []


@given(st.text(max_size=100))
def test_any_text_has_ranges_that_run_forward(text: str) -> None:
    for span in date_spans(text, TODAY):
        assert span.first or span.stop
        assert not (span.first and span.stop) or span.first < span.stop
