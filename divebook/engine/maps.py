"""Persistent mapping of the state: `Map`, from the package immutables or, where it is missing, `PersistentMap`.

A persistent mapping is never changed. ``set``, ``delete`` and ``update`` return another mapping, which shares most of
its structure with the first. A snapshot of the variables is therefore a reference, and adding an item to a long list of
results does not copy the list.

immutables is written in C. It has no wheel for Python 3.14, where it would need a compiler. `pyproject.toml` requires
it for older Pythons only; on newer ones the engine uses `PersistentMap`. Both have the same methods and pass the same
tests (``tests/engine/test_maps.py``).

rpds-py has wheels for all Pythons, but it takes four to five times as long as immutables for each operation. A step
does about twelve operations on mappings: with rpds-py an item of a step with Each would take 8 % longer. Executions
with `PersistentMap` take as long as with immutables, within what can be measured.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Map", "PersistentMap"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)

_Node = Any
"""A leaf is a dict, a branch is a tuple of `_WIDTH` nodes. (mypy has no recursive alias with type variables.)"""
_BITS = 4
_WIDTH = 1 << _BITS
_LEAF = 32
"""Maximum number of entries of a leaf. Copying a dict of this size takes less time than another level of the tree."""
_MAX_DEPTH = 15
"""Maximum number of levels of branches. Below, keys have equal hashes, and a leaf has all of them."""


class PersistentMap(Mapping[K, V_co]):
    """A persistent mapping in Python: a dict of up to 32 entries, or a tree of such dicts.

    The hash of a key chooses its branch, as in immutables.

    A change copies one dict and the branches above it. With 1,000 entries these are a dict and two tuples.

    >>> before = PersistentMap(a=1)
    >>> after = before.set("b", 2)
    >>> before, after
    (Map({'a': 1}), Map({'a': 1, 'b': 2}))
    """

    __slots__ = ("_length", "_root")
    _root: _Node
    _length: int

    def __init__(self, entries: Mapping[K, V_co] | Iterable[tuple[K, V_co]] = (), /, **keywords: V_co) -> None:
        flat: dict[Any, Any] = dict(entries, **keywords)
        self._length = len(flat)
        self._root = flat if len(flat) <= _LEAF else _split(flat, 0)

    @classmethod
    def _of(cls, root: _Node, length: int) -> PersistentMap[K, V_co]:
        new = object.__new__(cls)
        new._root = root
        new._length = length
        return new

    def _flat(self) -> dict[K, V_co]:
        """Return all entries as a dict, which is the mapping's own if it is small."""
        if type(self._root) is dict:
            return self._root
        return _collected(self._root)

    def __getitem__(self, key: K) -> V_co:
        node = self._root
        if type(node) is not dict:
            node = _leaf(node, key)
        value: V_co = node[key]
        return value

    def __contains__(self, key: object) -> bool:
        node = self._root
        return key in (node if type(node) is dict else _leaf(node, key))

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        node = self._root
        return (node if type(node) is dict else _leaf(node, key)).get(key, default)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return iter(self._flat())

    def keys(self) -> KeysView[K]:
        """Return the keys."""
        return self._flat().keys()

    def values(self) -> ValuesView[V_co]:
        """Return the values."""
        return self._flat().values()

    def items(self) -> ItemsView[K, V_co]:
        """Return the pairs of keys and values."""
        return self._flat().items()

    def set(self, key: K, value: Any) -> PersistentMap[K, V_co]:
        """Return a mapping in which a key has a value."""
        root = self._root
        leaf = root if type(root) is dict else _leaf(root, key)
        if key in leaf:
            # As in immutables, an unchanged mapping stays the same object.
            return self if leaf[key] is value else self._of(_with(root, key, value, hash(key), 0), self._length)
        return self._of(_with(root, key, value, hash(key), 0), self._length + 1)

    def delete(self, key: K) -> PersistentMap[K, V_co]:
        """Return a mapping without a key. Raise KeyError if it is missing."""
        root = self._root
        if key not in (root if type(root) is dict else _leaf(root, key)):
            raise KeyError(key)
        length = self._length - 1
        rest = _without(root, key, hash(key))
        # A tree that has lost most of its entries becomes a dict. At half of the limit, so that a mapping whose size
        # stays near the limit does not change its form each time.
        if type(rest) is not dict and length <= _LEAF // 2:
            rest = _collected(rest)
        return self._of(rest, length)

    def update(
        self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = (), /, **keywords: Any
    ) -> PersistentMap[Any, Any]:
        """Return a mapping with other entries added or replaced."""
        added = dict(entries, **keywords)
        if len(added) > _LEAF or type(self._root) is dict:
            return PersistentMap({**self._flat(), **added}) if added else self
        new: PersistentMap[Any, Any] = self
        for key, value in added.items():
            new = new.set(key, value)
        return new

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PersistentMap):
            return NotImplemented
        return self is other or (self._length == other._length and self._flat() == other._flat())

    def __hash__(self) -> int:
        return hash(frozenset(self._flat().items()))

    def __repr__(self) -> str:
        return f"Map({self._flat()!r})"

    def __reduce__(self) -> tuple[type[PersistentMap[K, V_co]], tuple[dict[K, V_co]]]:
        return PersistentMap, (dict(self._flat()),)


def _leaf(node: _Node, key: object) -> dict[Any, Any]:
    """Return the dict of a tree in which a key is, or would be."""
    bits = hash(key)
    while type(node) is not dict:
        node = node[bits & (_WIDTH - 1)]
        bits >>= _BITS
    leaf: dict[Any, Any] = node
    return leaf


def _with(node: _Node, key: Any, value: Any, bits: int, depth: int) -> _Node:
    """Return a node in which a key has a value. `bits` is its hash without the bits that chose the node."""
    if type(node) is dict:
        leaf = node.copy()
        leaf[key] = value
        return leaf if len(leaf) <= _LEAF or depth == _MAX_DEPTH else _split(leaf, depth)
    index = bits & (_WIDTH - 1)
    child = _with(node[index], key, value, bits >> _BITS, depth + 1)
    return (*node[:index], child, *node[index + 1 :])


def _without(node: _Node, key: Any, bits: int) -> _Node:
    """Return a node without a key that is in it."""
    if type(node) is dict:
        leaf = node.copy()
        del leaf[key]
        return leaf
    index = bits & (_WIDTH - 1)
    return (*node[:index], _without(node[index], key, bits >> _BITS), *node[index + 1 :])


def _split(leaf: dict[Any, Any], depth: int) -> _Node:
    """Return the entries of a dict that is too large, as a branch."""
    children: list[Any] = [{} for _ in range(_WIDTH)]
    for key, value in leaf.items():
        children[hash(key) >> depth * _BITS & (_WIDTH - 1)][key] = value
    return tuple(
        _split(child, depth + 1) if len(child) > _LEAF and depth + 1 < _MAX_DEPTH else child for child in children
    )


def _collected(tree: _Node) -> dict[Any, Any]:
    """Return all entries of a tree as a dict."""
    flat: dict[Any, Any] = {}
    _collect(tree, flat)
    return flat


def _collect(node: _Node, flat: dict[Any, Any]) -> None:
    if type(node) is dict:
        flat.update(node)
        return
    for child in node:
        _collect(child, flat)


if TYPE_CHECKING:
    from immutables import Map
else:
    try:
        from immutables import Map
    except ImportError:
        Map = PersistentMap
