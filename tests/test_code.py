"""bson's Code is a str to Python and something to execute to a server: nowhere is it taken for text."""

from __future__ import annotations

import pytest
from bson.code import Code
from support.builders import checkpoint, config, metadata
from support.env import Env, scenario
from support.kinds import MONGOMOCK, PYMONGO

from docstore_saver import DocStoreSaver
from docstore_saver.errors import ConfigurationError, InvalidArgumentError

pytestmark = pytest.mark.kinds(PYMONGO, MONGOMOCK)


@scenario
async def test_a_task_path_of_code_is_refused_before_any_command(env: Env) -> None:
    store = env.open()
    at = await store.put(config(), checkpoint(0), metadata())
    with env.commands.count() as sent, pytest.raises(InvalidArgumentError, match="task_path"):
        await store.put_writes(at, [("x", 1)], "task", Code("~1"))
    assert sent == []
    assert (await store.get(at)).pending_writes == []


@scenario
async def test_a_run_id_of_code_is_stored_as_its_text(env: Env) -> None:
    store = env.open()
    await store.put({**config(), "run_id": Code("r")}, checkpoint(0), metadata())
    assert type(env.raw["docstore_checkpoints"].find_one()["run_id"]) is str


def test_a_collection_prefix_of_code_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="collection_prefix"):
        DocStoreSaver.in_memory(collection_prefix=Code("p_"))
