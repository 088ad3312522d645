"""A generated statement as a tree, and the smaller trees that a reducer tries in its place.

A node has a sort: what may stand in its place. Expressions have the sort `expr` and a type, queries
`query`, what stands in FROM `from`. A list has elements, any of which may go down to a minimum; an
optional node may go altogether.
"""

import copy

# What an expression of a type is made into when nothing smaller does.
SIMPLEST = {
    "bool": "true",
    "int2": "1::int2",
    "int4": "1",
    "int8": "1::int8",
    "numeric": "1.5",
    "float4": "1::float4",
    "float8": "1::float8",
    "text": "'a'::text",
    "varchar": "'a'::varchar",
    "char": "'a'::char(4)",
    "date": "date '2020-01-01'",
    "timestamp": "timestamp '2020-01-01'",
    "timestamptz": "timestamptz '2020-01-01 00:00+00'",
    "bytea": "'\\x61'::bytea",
    "uuid": "'00000000-0000-0000-0000-000000000001'::uuid",
}


class Node:
    """Text and nodes in a row. `type` is an expression's; `wild`: may overflow or is inexact."""

    __slots__ = ("sort", "parts", "type", "optional", "wild", "separator", "least", "columns", "of")

    def __init__(self, sort, *parts, type=None, optional=False, wild=False):
        self.sort = sort
        self.parts = list(parts)
        self.type = type
        self.optional = optional
        self.separator = ""
        self.least = 0
        # (name, type, wild) of a query's or a relation's columns.
        self.columns = []
        # The node that a total order is an order of.
        self.of = None
        self.wild = wild or any(isinstance(p, Node) and p.wild for p in parts)

    def __str__(self):
        if self.sort == "positions":
            return ", ".join(str(at + 1) for at in range(len(self.of.parts)))
        if self.sort == "all columns":
            return ", ".join(str(name) for name, _, _ in self.of.columns) or "1"
        return self.separator.join(str(part) for part in self.parts)

    def children(self):
        return [part for part in self.parts if isinstance(part, Node)]

    def size(self):
        """Rough length: what a reduction must make smaller."""
        return len(str(self))

    def walk(self):
        """All nodes, this one first, by depth."""
        level = [self]
        while level:
            yield from level
            level = [child for node in level for child in node.children()]


def expression(type, *parts, wild=False):
    return Node("expr", *parts, type=type, wild=wild)


def listed(elements, separator=", ", least=1):
    node = Node("list", *elements)
    node.separator = separator
    node.least = least
    return node


def optional(*parts):
    """A clause that may go."""
    return Node("clause", *parts, optional=True)


def positions(items):
    """ORDER BY all columns of a select list, also when elements of it have gone."""
    node = Node("positions")
    node.of = items
    return node


def all_columns(relation):
    """ORDER BY all columns of what stands in FROM."""
    node = Node("all columns")
    node.of = relation
    return node


def replacements(node):
    """Smaller nodes to be tried in the place of this one, the smallest first."""
    found = []
    if node.optional and node.parts:
        found.append(Node("clause", optional=True))
    if node.sort == "list":
        found += shorter_lists(node)
    if node.sort == "expr" and str(node) != SIMPLEST[node.type]:
        found.append(Node("expr", SIMPLEST[node.type], type=node.type))
        found.append(Node("expr", f"null::{node.type}", type=node.type))
    if node.sort in ("expr", "query", "from"):
        below = [n for n in node.walk() if n is not node and n.sort == node.sort]
        found += sorted((n for n in below if n.type == node.type), key=Node.size)[:12]
    return [n for n in found if n.size() < node.size()]


def shorter_lists(node):
    """Without each half, each quarter and so on down to each single element."""
    count, found = len(node.parts), []
    step = (count + 1) // 2
    while step >= 1 and count:
        for at in range(0, count, step):
            kept = node.parts[:at] + node.parts[at + step :]
            if len(kept) >= node.least:
                shorter = listed(kept, node.separator, node.least)
                shorter.optional = node.optional
                found.append(shorter)
        step //= 2
    return found


def reductions(root):
    """Trees that are smaller than this one in one place; large steps come first."""
    places = list(root.walk())
    for at, node in enumerate(places):
        for smaller in replacements(node):
            yield replaced(root, at, smaller)


def replaced(root, at, smaller):
    """A copy of the tree in which the node number `at` of the walk is another one."""
    tree = copy.deepcopy(root)
    target = next(n for number, n in enumerate(tree.walk()) if number == at)
    other = copy.deepcopy(smaller)
    for name in Node.__slots__:
        setattr(target, name, getattr(other, name))
    return tree
