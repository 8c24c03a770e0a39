"""Documents that workflows read and write, and the policy that limits what definitions may access.

A package below the steps, because steps, content entries and environments share it.
"""

from divebook.documents.policy import Policy
from divebook.documents.repository import Document, DocumentRepository, FileDocuments, MemoryDocuments

__all__ = ["Document", "DocumentRepository", "FileDocuments", "MemoryDocuments", "Policy"]
