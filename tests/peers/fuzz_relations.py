"""Draws what stands in FROM: tables, subqueries, LATERAL, VALUES, functions, joins."""

import fuzz_expressions
from fuzz_expressions import Scope
from fuzz_tree import Node, expression, listed, optional


def relation(*parts, columns):
    node = Node("from", *parts)
    node.columns = columns
    return node


def bare(name):
    """A column's own name, of how it is referred to."""
    return str(name).split(".")[-1]


class Relations(fuzz_expressions.Expressions):
    def __init__(self, draw, tables):
        super().__init__(draw, tables)
        # (name, [(column, type, wild)]) of the WITH queries that can be named here.
        self.ctes = []

    def sources(self, outer, depth):
        """FROM's relation: one, a join, or several by commas, perhaps lateral to those before.

        Returns the node and a scope of it.
        """
        outer = outer or Scope()
        first = self.joined(outer, depth)
        scope = Scope(outer)
        scope.add(first)
        nodes = [first]
        while len(nodes) < 3 and self.chance(0.2):
            if self.chance(0.4):
                nodes.append(self.lateral(scope, depth))
            else:
                nodes.append(self.single(outer, depth))
            scope.add(nodes[-1])
        if len(nodes) == 1:
            return first, scope
        columns = [column for node in nodes for column in node.columns]
        return relation(listed(nodes), columns=columns), scope

    def single(self, outer, depth):
        kind = self.draw.random()
        if self.ctes and kind < 0.35:
            return self.cte()
        if kind < 0.65 or depth <= 0:
            return self.table()
        if kind < 0.85:
            types = [self.type() for _ in range(self.draw.choice([1, 2, 2, 3]))]
            return self.derived("", self.query(outer, types, depth - 1))
        if kind < 0.93:
            return self.values(outer)
        return self.function_relation(outer)

    def table(self):
        table = self.draw.choice(self.tables)
        alias = self.alias("r")
        names = [c.name for c in table.columns]
        text = f"{table.name} as {alias}"
        if self.chance(0.1):
            names = [f"x{at}" if self.chance(0.5) else name for at, name in enumerate(names)]
            text += f"({', '.join(names)})"
        columns = [(f"{alias}.{n}", c.type, c.wild) for n, c in zip(names, table.columns)]
        return relation(text, columns=columns)

    def cte(self):
        name, known = self.draw.choice(self.ctes)
        alias = self.alias("r")
        columns = [(f"{alias}.{column}", type, wild) for column, type, wild in known]
        return relation(f"{name} as {alias}", columns=columns)

    def derived(self, lateral, query):
        alias = self.alias("q")
        names = [f"c{at}" for at in range(len(query.columns))]
        text = f") as {alias}({', '.join(names)})"
        columns = [(f"{alias}.{n}", c[1], c[2]) for n, c in zip(names, query.columns)]
        return relation(f"{lateral}(", query, text, columns=columns)

    def lateral(self, scope, depth):
        if depth <= 0 or self.chance(0.3):
            return self.function_relation(scope)
        types = [self.type(scope) for _ in range(self.draw.choice([1, 2]))]
        return self.derived("lateral ", self.query(scope, types, depth - 1))

    def values(self, outer):
        types = [self.type() for _ in range(self.draw.choice([1, 2]))]
        alias = self.alias("v")
        rows = []
        for _ in range(self.draw.randint(1, 3)):
            parts = []
            for type in types:
                parts += [", " if parts else "", self.literal(type)]
            rows.append(Node("values", "(", *parts, ")"))
        names = [f"c{at}" for at in range(len(types))]
        columns = [(f"{alias}.{name}", type, True) for name, type in zip(names, types)]
        tail = f") as {alias}({', '.join(names)})"
        return relation("(values ", listed(rows), tail, columns=columns)

    def function_relation(self, scope):
        """A function that returns a set; with columns in scope it is lateral."""
        alias = self.alias("g")
        kind = self.draw.randrange(3)
        columns = [(f"{alias}.n", "int4", False)]
        if kind == 0:
            items = [self.leaf("int4", scope) for _ in range(self.draw.randint(1, 3))]
            return relation("unnest(array[", listed(items), f"]) as {alias}(n)", columns=columns)
        limit = self.leaf("int4", scope)
        call = ["generate_series(1, least(", limit, ", 5))"]
        if kind == 1:
            columns.append((f"{alias}.o", "int8", False))
            return relation(*call, f" with ordinality as {alias}(n, o)", columns=columns)
        return relation(*call, f" as {alias}(n)", columns=columns)

    # Joins

    def joined(self, outer, depth):
        left = self.single(outer, depth)
        while self.chance(0.35):
            left = self.join(left, outer, depth)
        return left

    def join(self, left, outer, depth):
        kind = self.draw.choice(
            [
                "join",
                "join",
                "left join",
                "left join",
                "right join",
                "full join",
                "cross join",
                "left join lateral",
                "using",
                "natural",
            ]
        )
        if kind == "left join lateral":
            scope = Scope(outer)
            scope.add(left)
            types = [self.type(scope) for _ in range(self.draw.choice([1, 2]))]
            right = self.derived("lateral ", self.query(scope, types, max(depth - 1, 0)))
            return self.on(left, " left join ", right, outer, False)
        right = self.single(outer, depth)
        if kind == "cross join":
            return relation(
                "(", left, " cross join ", right, ")", columns=left.columns + right.columns
            )
        if kind in ("using", "natural"):
            merged = self.merge(kind, left, right)
            if merged:
                return merged
            kind = "join"
        return self.on(left, f" {kind} ", right, outer, kind == "full join")

    def on(self, left, word, right, outer, full):
        scope = Scope(outer)
        scope.add(left)
        scope.add(right)
        condition = self.equality(left, right)
        if condition is None or (not full and self.chance(0.4)):
            condition = self.condition(scope, 1)
        elif not full and self.chance(0.3):
            more = optional(self.draw.choice([" and ", " and ", " or "]), self.condition(scope, 1))
            condition = expression("bool", "(", condition, more, ")")
        columns = left.columns + right.columns
        return relation("(", left, word, right, " on ", condition, ")", columns=columns)

    def equality(self, left, right):
        pairs = [(a, b) for a in left.columns for b in right.columns if a[1] == b[1]]
        if not pairs:
            return None
        a, b = self.draw.choice(pairs)
        return expression("bool", f"{a[0]} = {b[0]}")

    def merge(self, kind, left, right):
        """USING or NATURAL over columns with one name and type; None if there are none."""
        ours, theirs = [bare(c[0]) for c in left.columns], [bare(c[0]) for c in right.columns]
        common = [name for name in ours if ours.count(name) == 1 and theirs.count(name) == 1]
        types = lambda side: {bare(c[0]): c[1] for c in side.columns}
        fitting = [name for name in common if types(left)[name] == types(right)[name]]
        ambiguous = [name for name in ours if name in theirs and name not in fitting]
        if not fitting or (kind == "natural" and ambiguous):
            return None
        side = self.draw.choice(["", " left", " right", " full", " inner"])
        columns = left.columns + right.columns
        if kind == "natural":
            names = fitting
            node = relation("(", left, f" natural{side} join ", right, ")", columns=columns)
        else:
            names = self.draw.sample(fitting, self.draw.randint(1, len(fitting)))
            using = f" using ({', '.join(names)}))"
            node = relation("(", left, f"{side} join ", right, using, columns=columns)
        if self.chance(0.25):
            return self.under_alias(node, names, ours, theirs)
        if self.chance(0.4):
            # The merged columns have no table.
            node.columns = columns + [(name, types(left)[name], True) for name in names]
        return node

    def under_alias(self, node, names, ours, theirs):
        """The join under a name of its own: only merged and unambiguous columns can be named."""
        alias = self.alias("j")
        columns = []
        for name, type, wild in node.columns:
            own = bare(name)
            single = (ours + theirs).count(own) == 1 or own in names
            if single and all(bare(c[0]) != own for c in columns):
                columns.append((f"{alias}.{own}", type, wild))
        return relation(node, f" as {alias}", columns=columns)
