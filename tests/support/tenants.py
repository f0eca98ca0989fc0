"""Four ways to say for whom a call is, behind one face."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from support.builders import config
from support.env import Env
from support.stores import Store

CURRENT: ContextVar[str] = ContextVar("tenant")
KEY = "tenant_id"
WAYS = ["for_tenant", "option", "callable", "key"]


@dataclass
class View:
    """One tenant's view of a store. Ask for a config directly before each call: it says for whom the call is."""

    tenant: str
    store: Store
    more: dict[str, str] = field(default_factory=dict)
    clone: Store | None = None
    """For what a key of the config does not reach."""

    def config(self, *args: Any, **more: Any) -> dict[str, Any]:
        CURRENT.set(self.tenant)
        return config(*args, **more, **self.more)

    async def everything(self) -> list[Any]:
        """`list(None)`, and with a key the config that stands for it."""
        CURRENT.set(self.tenant)
        return await self.store.list({"configurable": self.more} if self.more else None)

    async def delete(self, thread: str) -> None:
        CURRENT.set(self.tenant)
        await (self.clone or self.store).delete_thread(thread)


def views(env: Env, way: str, **options: Any) -> Callable[[str], View]:
    """Makes a view for a tenant. All of them share what that way lets them share."""
    if way == "option":
        return lambda tenant: View(tenant, env.open(tenant=tenant, **options))
    if way == "callable":
        store = env.open(tenant_from=CURRENT.get, **options)
        return lambda tenant: View(tenant, store)
    if way == "key":
        store = env.open(tenant_from=KEY, **options)
        return lambda tenant: View(tenant, store, {KEY: tenant}, store.over(store.saver.for_tenant(tenant)))
    store = env.open(**options)
    return lambda tenant: View(tenant, store.over(store.saver.for_tenant(tenant)))
