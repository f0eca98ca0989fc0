"""What an exception tells its reader, with everything that stands behind it."""

from __future__ import annotations

import traceback


def whole_chain(error: BaseException) -> list[BaseException]:
    """The exception, its causes and its contexts, suppressed ones too."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in found:
            found.append(one)
            waiting += [one.__cause__, one.__context__]
    return found


def everything_said(error: BaseException) -> str:
    """All texts of the chain: messages, representations, arguments, and the traceback as a log would have it."""
    texts = [f"{one!s} {one!r} {one.args!r} {vars(one)!r}" for one in whole_chain(error)]
    return "\n".join([*texts, *traceback.format_exception_only(error)])
