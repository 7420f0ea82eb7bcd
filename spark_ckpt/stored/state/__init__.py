"""Reading what is in a checkpoint's state stores, without Spark."""

from __future__ import annotations

from spark_ckpt.stored.state.archive import FullSnapshot
from spark_ckpt.stored.state.assemble import AssembledStore, assemble
from spark_ckpt.stored.state.count import CountResult, KeyCount, count_keys

__all__ = ["AssembledStore", "CountResult", "FullSnapshot", "KeyCount", "assemble", "count_keys"]
