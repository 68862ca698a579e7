"""State directories written by earlier versions still load: tests/data/store-v<format>."""

from __future__ import annotations

import shutil
from pathlib import Path

from ctld.store.blobfile import hash_of
from ctld.store.blobs import BlobStore
from ctld.store.checkpoint import load
from ctld.store.journal import Journal

DATA = Path(__file__).resolve().parents[3] / "data"


def test_format_1_loads(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    shutil.copytree(DATA / "store-v1", directory)
    checkpoint = load(directory)
    assert checkpoint is not None
    assert checkpoint.number == 3
    assert {name: list(records) for name, records in checkpoint.sections()} == {
        "jobs": [b"job one", b"job two"],
        "nodes": [],
    }
    blobs = BlobStore(directory)
    assert blobs.get(hash_of(b"#!/bin/sh\nhostname\n")) == b"#!/bin/sh\nhostname\n"  # from the blob file
    recovery = Journal.recover(directory, after=3, log_id=checkpoint.log_id, on_blob=blobs.placed)
    assert list(recovery) == [(4, b"event four")]
    recovery.close()
    assert blobs.get(hash_of(b"A=1\0B=2\0")) == b"A=1\0B=2\0"  # from the journal
    blobs.close()
    recovery = Journal.recover(directory)
    assert [payload for _, payload in recovery] == [b"event one", b"event two", b"event three", b"event four"]
    recovery.close()
