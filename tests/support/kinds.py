"""The five clients that a saver runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mongomock
import mongomock_motor
import pymongo
from motor.motor_asyncio import AsyncIOMotorClient

from docstore_saver import AsyncDocStoreSaver, DocStoreSaver


@dataclass(frozen=True)
class Kind:
    """A client, and the face that it belongs to."""

    name: str
    make_client: Callable[..., Any]
    is_async: bool
    needs_server: bool

    @property
    def face(self) -> Any:
        return AsyncDocStoreSaver if self.is_async else DocStoreSaver


PYMONGO = Kind("pymongo", pymongo.MongoClient, is_async=False, needs_server=True)
ASYNC_PYMONGO = Kind("async-pymongo", pymongo.AsyncMongoClient, is_async=True, needs_server=True)
MOTOR = Kind("motor", AsyncIOMotorClient, is_async=True, needs_server=True)
MONGOMOCK = Kind("mongomock", lambda _, **__: mongomock.MongoClient(), is_async=False, needs_server=False)
MONGOMOCK_MOTOR = Kind(
    "mongomock-motor", lambda _, **__: mongomock_motor.AsyncMongoMockClient(), is_async=True, needs_server=False
)

ON_MONGOD = [PYMONGO, ASYNC_PYMONGO, MOTOR]
EMBEDDED = [MONGOMOCK, MONGOMOCK_MOTOR]
KINDS = [*ON_MONGOD, *EMBEDDED]
