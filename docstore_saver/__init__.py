"""A LangGraph checkpointer for document stores."""

from importlib.metadata import version

from docstore_saver.aio import AsyncDocStoreSaver
from docstore_saver.saver import DocStoreSaver

__version__ = version("docstore_saver")

__all__ = ["AsyncDocStoreSaver", "DocStoreSaver", "__version__"]
