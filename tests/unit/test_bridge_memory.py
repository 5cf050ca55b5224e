"""What the bridge remembers of one page never changes what it reads on the next."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from collectors.base import Group
from collectors.bridge.scrape import Reader, Scrape
from collectors.tables import Tables
from tests.bridge_tables import TABLES

_UTIL = "DCGM_FI_DEV_GPU_UTIL"
PIECES = [
    _UTIL, "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_IMEX_DAEMON_STATUS", "x", "{", "}", '"', " ", " ", "\t",
    '{gpu="0",UUID="a"}', '{gpu="1",UUID="b",err_code="3"}', '{gpu="0"}', '{UUID="} 7"}',
    " 5", " 1700000000000", " 99", " NaN", " # {} 1",
]  # fmt: skip
LINES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
GOOD = st.builds(
    "{}{} {}{}".format,
    st.sampled_from([_UTIL, "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FB_USED"]),
    st.sampled_from(['{gpu="0",UUID="a"}', '{gpu="1",UUID="b",err_code="3"}', '{gpu="0"}', '{UUID="} 7"}']),
    st.integers(0, 9),
    st.sampled_from(["", " 1700000000000", " 12"]),
)
PAGES = st.lists(st.one_of(LINES, GOOD), max_size=8).map(lambda texts: "".join(text + "\n" for text in texts).encode())


def reader() -> Reader:
    assert TABLES.bridge is not None
    wanted: dict[Group, frozenset[str]] = {"normal": frozenset(series.name for series in TABLES.series)}
    return Reader(msgspec.structs.replace(TABLES), TABLES.bridge, wanted, max_series=1000, max_age=300)


def read(by: Reader, page: bytes) -> Scrape:
    return by.read([page], openmetrics=False, now=1_700_000_100.0)


@given(PAGES, PAGES)
def test_a_page_reads_the_same_after_any_other(first: bytes, second: bytes) -> None:
    used = reader()
    read(used, first)
    assert read(used, second) == read(reader(), second)


def test_tables_are_plain_data() -> None:
    assert msgspec.convert(msgspec.to_builtins(TABLES), Tables) == TABLES
