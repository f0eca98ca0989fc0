"""A second saver on the same store, cheaper than `Env.open`, which also makes a client."""

from __future__ import annotations

from typing import Any

from support.env import Env
from support.stores import Store


def fresh(env: Env, store: Store, **options: Any) -> Store:
    """A saver that knows nothing of what the other did; they share no more than the client."""
    given = {"database": env.database, "inline_limit": 64, "auto_setup": False, **options}
    return store.over(env.kind.face(store.client, **given))
