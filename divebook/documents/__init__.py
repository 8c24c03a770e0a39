"""Documents that workflows read and write."""

from divebook.documents.policy import Policy
from divebook.documents.repository import Document, DocumentRepository, FileDocuments, MemoryDocuments

__all__ = ["Document", "DocumentRepository", "FileDocuments", "MemoryDocuments", "Policy"]
