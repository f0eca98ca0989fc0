"""What the clones of a saver share, and what one operation sees.

LangGraph clones savers (`copy.copy` at every compile under strict msgpack), so everything beyond serde, tenant and
options lives in one `SharedState`. Its caches are bounded and hold references, times and small
serialised values, never decoded ones.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from docstore_saver.calls import CollectionName
from docstore_saver.codec import Codec, Typed
from docstore_saver.dialects import Dialect
from docstore_saver.documents import Place, Reference

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

TOUCH_SECONDS = 600.0
"""How long a stored or touched value may be referred to again without asking (docs/format.md, section 5)."""
MOST_GRACE = timedelta(hours=1)
ASK_AGAIN = timedelta(minutes=10)
"""How long a saver goes on with the ttl that it knows before it asks what the store's has become."""
_STEPS = 10
_HEADS_BYTES = 32 * 1024 * 1024


class LruCache(Generic[K, V]):
    """A mapping of bounded weight that forgets what was used longest ago. Safe to share between threads."""

    def __init__(self, most: int, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self._most, self._weigh = most, weigh
        self._weight = 0
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: K, value: V) -> None:
        with self._lock:
            if key in self._entries:
                self._weight -= self._weigh(self._entries.pop(key))
            self._entries[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._most and len(self._entries) > 1:
                self._weight -= self._weigh(self._entries.popitem(last=False)[1])

    def discard(self, unwanted: Callable[[K], bool]) -> None:
        with self._lock:
            for key in [key for key in self._entries if unwanted(key)]:
                self._weight -= self._weigh(self._entries.pop(key))

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True, slots=True)
class Head:
    """What a child takes over from a checkpoint."""

    refs: Mapping[str, Reference]
    inline: Mapping[str, tuple[str, Typed]]
    """The version (as `version_text`) and the serialised value of each channel that lies inline."""
    delta: Mapping[str, int]
    seen: float
    """`time.monotonic()` of the read or the put."""

    def weight(self) -> int:
        """Roughly, the bytes that it keeps."""
        inline = sum(400 + len(data) for _, (_, data) in self.inline.values())
        return 1000 + 800 * len(self.refs) + inline + 100 * len(self.delta)


@dataclass(frozen=True, slots=True)
class Ttl:
    """The time to live of a store's threads; `docs/format.md`, section 7."""

    seconds: int
    since: datetime | None = field(default=None, compare=False)
    """When the store's ttl was switched on."""

    @property
    def grace(self) -> int:
        return min(self.seconds, int(MOST_GRACE.total_seconds()))

    @property
    def expire_after_seconds(self) -> int:
        """For the TTL indexes: a step more than readers wait, and grace."""
        return self.seconds + -(-self.seconds // _STEPS) + self.grace

    def stamp(self, time: datetime) -> datetime:
        """The time rounded up to the next step of ttl / 10, so that a thread's documents share one stamp."""
        step = timedelta(seconds=self.seconds) / _STEPS
        epoch = datetime(1970, 1, 1)  # noqa: DTZ001  # as BSON has it: UTC without a zone
        return epoch + -(-(time - epoch) // step) * step

    @property
    def unstamped(self) -> datetime | None:
        """The `active_at` of what has none: savers stored it that had not taken notice of the ttl yet."""
        return self.since and self.since + ASK_AGAIN

    def is_over(self, active_at: datetime | None, time: datetime) -> bool:
        return self._has_passed(active_at, self.seconds, time)

    def is_going(self, active_at: datetime | None, time: datetime) -> bool:
        """Whether grace has passed too, and the server may soon take the thread apart."""
        return self._has_passed(active_at, self.seconds + self.grace, time)

    def _has_passed(self, active_at: datetime | None, seconds: int, time: datetime) -> bool:
        active_at = self.unstamped if active_at is None else active_at
        return active_at is not None and active_at + timedelta(seconds=seconds) <= time


@dataclass
class SharedState:
    """One for a saver and all of its clones."""

    dialect: Dialect
    ttl: Ttl | None = None
    """The option's, else (after setup) the store's."""
    ttl_read: float = field(default_factory=time.monotonic)
    """`time.monotonic()` of when the store was last asked for its ttl."""
    heads: LruCache[Place, Head] = field(default_factory=lambda: LruCache(_HEADS_BYTES, Head.weight))
    touched: LruCache[tuple[str, str, str], float] = field(default_factory=lambda: LruCache(32768))
    """(tenant, thread_id, value_id) -> `time.monotonic()` of when this process last stored or touched the value."""
    stamps: LruCache[tuple[str, str], datetime] = field(default_factory=lambda: LruCache(8192))
    """(tenant, thread_id) -> the `active_at` that this process last lifted the thread to."""

    def touch(self, place: Place, value_ids: Iterable[str]) -> None:
        moment = time.monotonic()
        for value_id in value_ids:
            self.touched.put((place.tenant, place.thread_id, value_id), moment)

    def is_fresh(self, place: Place, value_id: str) -> bool:
        touched = self.touched.get((place.tenant, place.thread_id, value_id))
        return touched is not None and time.monotonic() - touched < TOUCH_SECONDS

    def forget_thread(self, tenant: str, thread_id: str) -> None:
        self.heads.discard(lambda place: place[:2] == (tenant, thread_id))
        self.stamps.discard(lambda key: key == (tenant, thread_id))
        self.touched.discard(lambda key: key[:2] == (tenant, thread_id))


@dataclass(frozen=True, slots=True)
class Scope:
    """What one operation works with."""

    state: SharedState
    codec: Codec
    names: Mapping[CollectionName, str]
    inline_limit: int
    delta_strategy: str
    indexed: frozenset[str]
    """The metadata keys in `indexed_metadata`."""

    @property
    def dialect(self) -> Dialect:
        return self.state.dialect
