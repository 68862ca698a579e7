"""The bounded cache of scripts and environments."""

from __future__ import annotations

from noded.launch.blobs import Blobs


def test_the_least_recently_used_goes_first() -> None:
    blobs = Blobs(most_bytes=10)
    blobs.put(b"a", b"1234")
    blobs.put(b"b", b"1234")
    assert blobs.get(b"a") == b"1234"
    blobs.put(b"c", b"1234")
    assert [blobs.get(name) for name in (b"a", b"b", b"c")] == [b"1234", None, b"1234"]


def test_one_over_the_bound_is_kept_alone() -> None:
    blobs = Blobs(most_bytes=10)
    blobs.put(b"a", b"1")
    blobs.put(b"big", b"x" * 20)
    assert blobs.get(b"a") is None
    assert blobs.get(b"big") == b"x" * 20
    blobs.put(b"a", b"1")
    assert blobs.get(b"big") is None


def test_the_same_blob_again_counts_once() -> None:
    blobs = Blobs(most_bytes=10)
    for _ in range(5):
        blobs.put(b"a", b"123456")
    blobs.put(b"b", b"1234")
    assert blobs.get(b"a") == b"123456"


def test_the_empty_name_is_empty_data() -> None:
    assert Blobs().get(b"") == b""
