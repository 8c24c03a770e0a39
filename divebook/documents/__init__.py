"""Documents that workflows read and write.

A package of its own below the steps, since steps, content entries and environments share it.
"""

from divebook.documents.policy import Policy
from divebook.documents.repository import Document, DocumentRepository, FileDocuments, MemoryDocuments

__all__ = ["Document", "DocumentRepository", "FileDocuments", "MemoryDocuments", "Policy"]
