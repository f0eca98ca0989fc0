"""LangGraph's own conformance suite, on every client."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from support.env import Env

CAPABILITIES = [
    "put",
    "put_writes",
    "get_tuple",
    "list",
    "delete_thread",
    "delete_for_runs",
    "copy_thread",
    "prune",
]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_capability(env: Env, capability: str) -> None:
    """The suite is async; on a sync saver it thereby tests the thread pool behind its a... methods."""

    async def factory() -> AsyncGenerator[Any, None]:
        yield env.open().saver

    async def body() -> None:
        registered = checkpointer_test(name=f"docstore-{env.kind.name}")(factory)
        report = await validate(registered, capabilities={capability})
        result = report.results[capability]
        assert result.detected
        assert result.passed, result.failures
        assert result.tests_passed > 0

    env.run(body, in_loop=True)
