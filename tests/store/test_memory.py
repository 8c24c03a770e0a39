from divebook.stores import MemoryStore
from tests.store.conformance import StorePromises


class TestMemoryStore(StorePromises):
    def make_store(self, folder):
        return MemoryStore()
