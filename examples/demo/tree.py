"""A thread's history as a tree of text: time runs downwards, and every fork opens branches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from langgraph.types import StateSnapshot

Children = dict[str | None, list[StateSnapshot]]


def tree_lines(snapshots: Iterable[StateSnapshot], describe: Callable[[StateSnapshot], str]) -> list[str]:
    """The lines of the tree; `snapshots` come in any order, one namespace's."""
    known = {_id(snapshot): snapshot for snapshot in snapshots}
    children: Children = defaultdict(list)
    # A checkpoint whose parent is not there (pruned, say) starts a tree of its own.
    for snapshot in known.values():
        parent = _parent_id(snapshot)
        children[parent if parent in known else None].append(snapshot)
    return [line for root in _sorted(children[None]) for line in _branch(root, children, describe)]


def _branch(start: StateSnapshot, children: Children, describe: Callable[[StateSnapshot], str]) -> Iterator[str]:
    """A branch up to its first fork, then the branches behind that, indented."""
    last = start
    yield describe(last)
    while len(following := children[_id(last)]) == 1:
        last = following[0]
        yield describe(last)
    following = _sorted(following)
    for child in following:
        is_last = child is following[-1]
        first, rest = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        for n, line in enumerate(_branch(child, children, describe)):
            yield (rest if n else first) + line


def _sorted(snapshots: list[StateSnapshot]) -> list[StateSnapshot]:
    return sorted(snapshots, key=_id)


def _id(snapshot: StateSnapshot) -> str:
    found: str = snapshot.config["configurable"]["checkpoint_id"]
    return found


def _parent_id(snapshot: StateSnapshot) -> str | None:
    if snapshot.parent_config is None:
        return None
    found: str = snapshot.parent_config["configurable"]["checkpoint_id"]
    return found
