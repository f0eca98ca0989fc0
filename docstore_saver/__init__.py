"""A LangGraph checkpointer for document stores."""

from importlib.metadata import version

from docstore_saver.aio import AsyncDocStoreSaver
from docstore_saver.reports import CheckReport, Finding, Progress, Removed, StoreStats, ThreadInfo
from docstore_saver.saver import DocStoreSaver

__version__ = version("docstore_saver")

__all__ = [
    "AsyncDocStoreSaver",
    "CheckReport",
    "DocStoreSaver",
    "Finding",
    "Progress",
    "Removed",
    "StoreStats",
    "ThreadInfo",
    "__version__",
]
