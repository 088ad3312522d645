"""Draws queries and statements that change rows."""

from fuzz_expressions import AGGREGATES, Scope
from fuzz_relations import Relations
from fuzz_tree import Node, all_columns, expression, listed, optional, positions

FRAMES = [
    "rows between unbounded preceding and current row",
    "rows between 1 preceding and 1 following",
    "rows between current row and unbounded following",
    "rows between 2 preceding and 1 preceding",
    "rows 1 preceding",
    "rows between 1 following and 2 following",
]
# Frames whose rows do not depend on the order of peers.
PEER_FRAMES = [
    "range between unbounded preceding and current row",
    "range unbounded preceding",
    "range between current row and unbounded following",
    "groups between 1 preceding and current row",
    "groups between current row and 1 following",
    "range between unbounded preceding and unbounded following",
]
EXCLUSIONS = [" exclude group", " exclude ties", " exclude no others"]


class Statements(Relations):
    def statement(self):
        """A statement; its sort is `query` if it only reads."""
        self.ctes = []
        if self.chance(0.76):
            return self.top_query()
        return self.draw.choice([self.insert, self.update, self.delete])()

    def top_query(self):
        types = [self.type() for _ in range(self.draw.randint(1, 4))]
        if self.chance(0.04):
            source, scope = self.sources(None, 2)
            return Node("query", "select * from ", source, self.where(scope, 2))
        if self.chance(0.2):
            return self.with_queries(None, types, 2, True)
        return self.query(None, types, self.draw.choice([1, 2, 2, 3]))

    # Queries

    def query(self, outer, types, depth):
        """A query whose columns have the types."""
        kind = self.draw.random()
        if depth > 0 and kind < 0.14:
            return self.set_operation(outer, types, depth)
        if depth > 0 and kind < 0.20:
            return self.with_queries(outer, types, depth, False)
        if kind < 0.23:
            return self.values_query(outer, types)
        if kind < 0.45:
            return self.grouped(outer, types, depth)
        return self.plain_query(outer, types, depth)

    def subquery(self, scope, types, depth, single):
        """A query in an expression; `single`: of one row at most."""
        if not single:
            return self.query(scope, types, max(depth, 0))
        kind = self.draw.random()
        if kind < 0.6 and types[0] in AGGREGATES:
            source, inner = self.sources(scope, max(depth, 0))
            value = self.aggregate(types[0], None, inner)
            query = Node(
                "query",
                "select ",
                listed([Node("item", value, " as c0")]),
                " from ",
                source,
                self.where(inner, depth),
            )
            query.columns = [("c0", types[0], value.wild)]
            return query
        if kind < 0.7:
            value = self.any(types[0], scope, depth)
            query = Node("query", "select ", listed([Node("item", value, " as c0")]))
            query.columns = [("c0", types[0], value.wild)]
            return query
        return self.plain_query(scope, types, max(depth, 0), limited=True)

    def ordered(self, scope, type, depth):
        """A query of one column in a total order."""
        source, inner = self.sources(scope, max(depth, 0))
        value = self.any(type, inner, 0)
        items = self.items([value])
        query = Node(
            "query",
            "select ",
            items,
            " from ",
            source,
            self.where(inner, depth),
            " order by ",
            positions(items),
        )
        return self.finish(query, [value])

    def where(self, scope, depth, probability=0.6):
        if not self.chance(probability):
            return ""
        return optional(" where ", self.condition(scope, min(max(depth, 0), 2)))

    def items(self, expressions):
        return listed([Node("item", e, f" as c{at}") for at, e in enumerate(expressions)])

    def finish(self, query, expressions):
        query.columns = [(f"c{at}", e.type, e.wild) for at, e in enumerate(expressions)]
        return query

    def plain_query(self, outer, types, depth, limited=False):
        source, scope = self.sources(outer, depth)
        values = [self.value(type, scope, source, depth) for type in types]
        items = self.items(values)
        distinct, order = "", ""
        if limited:
            order = Node("order", " order by ", self.order(items), " limit 1")
        elif self.chance(0.10):
            distinct = optional("distinct ")
        elif self.chance(0.07):
            on = [
                self.column(scope, None) or self.literal("bool")
                for _ in range(self.draw.choice([1, 2]))
            ]
            distinct = Node("on", "distinct on (", listed(on), ") ")
            order = Node("order", " order by ", *self.after(on), self.order(items))
        if order == "":
            order = self.tail(items)
        locking = ""
        if outer is None and distinct == "" and self.chance(0.03):
            locking = optional(" for update")
        query = Node(
            "query",
            "select ",
            distinct,
            items,
            " from ",
            source,
            self.where(scope, depth),
            order,
            locking,
        )
        return self.finish(query, values)

    def after(self, on):
        """The items of DISTINCT ON, to stand first in ORDER BY. One node each: both shrink."""
        parts = []
        for node in on:
            parts += [node, self.draw.choice([" desc", "", " nulls first"]), ", "]
        return parts

    def order(self, items):
        """A total order of the select list."""
        if self.chance(0.5):
            return positions(items)
        if self.chance(0.2):
            return ", ".join(f"c{at}" for at in range(len(items.parts)))
        count = len(items.parts)
        numbers = self.draw.sample(range(1, count + 1), count)
        words = ["", "", " desc", " nulls first", " desc nulls last"]
        # A fixed text: with an item gone it is no order of the rest, and the server says so.
        return ", ".join(f"{n}{self.draw.choice(words)}" for n in numbers)

    def tail(self, items):
        """ORDER BY, perhaps with LIMIT or OFFSET, which need it."""
        if not self.chance(0.25):
            return ""
        order = self.order(items)
        limit = ""
        if self.chance(0.6):
            limit = optional(
                self.draw.choice(
                    [
                        " limit 3",
                        " limit 2 offset 1",
                        " offset 2",
                        " fetch first 2 rows only",
                        " fetch first 1 row with ties",
                        " offset 1 row fetch next 2 rows with ties",
                        " limit 0",
                        " limit all",
                        " limit null",
                        " limit (select 2)",
                    ]
                )
            )
        return optional(" order by ", order, limit)

    def value(self, type, scope, source, depth):
        """A select item."""
        kind = self.draw.random()
        if kind < 0.12:
            found = self.window(type, scope, source)
            if found:
                return found
        if kind < 0.15 and type == "int4":
            return expression("int4", "generate_series(1, ", self.draw.choice(["2", "3", "0"]), ")")
        return self.any(type, scope, depth)

    # Windows

    def window(self, type, scope, source):
        """A window function of the type; None if there is none."""
        order_free = {
            "int8": ["rank()", "dense_rank()", "count(*)"],
            "float8": ["percent_rank()", "cume_dist()"],
        }
        if type in order_free and self.chance(0.4):
            call = [self.draw.choice(order_free[type])]
            return expression(
                type, *call, " over (", *self.partition(scope), *self.some_order(scope), ")"
            )
        if self.chance(0.5):
            return self.aggregate_window(type, scope, source)
        if type == "int8":
            call = ["row_number()"]
        elif type == "int4" and self.chance(0.3):
            call = ["ntile(3)"]
        else:
            argument = self.leaf(type, scope)
            template = self.draw.choice(
                [
                    "lag({})",
                    "lead({})",
                    "lag({}, 2)",
                    "first_value({})",
                    "last_value({})",
                    "nth_value({}, 2)",
                    "lead({}, 1, {})",
                ]
            )
            parts = template.split("{}")
            call = [parts[0], argument, parts[1]] + ([argument, parts[2]] if len(parts) > 2 else [])
        frame = " " + self.draw.choice(FRAMES) if self.chance(0.4) else ""
        order = ["order by ", all_columns(source), frame]
        return expression(type, *call, " over (", *self.partition(scope), *order, ")")

    def aggregate_window(self, type, scope, source):
        found = self.aggregate(type, None, scope)
        if found is None or "distinct" in str(found) or "order by" in str(found):
            return None
        if str(found).startswith("(") or "array_agg" in str(found):
            return None
        total = self.chance(0.4)
        frame = self.draw.choice(FRAMES if total else PEER_FRAMES) if self.chance(0.6) else ""
        if frame and not total and self.chance(0.2):
            frame += self.draw.choice(EXCLUSIONS)
        order = ["order by ", all_columns(source)] if total else self.some_order(scope)
        if not total and self.chance(0.25):
            order, frame = self.range_offset(scope)
        if "groups" in frame and not order:
            frame = ""
        return expression(
            type, found, " over (", *self.partition(scope), *order, " ", frame, ")", wild=found.wild
        )

    def range_offset(self, scope):
        """An order by one column and a frame by distances in it."""
        type = self.draw.choice(["int4", "int8", "numeric", "float8", "date", "timestamp"])
        key = self.column(scope, type)
        if key is None:
            return [], ""
        step = "interval '1 month'" if type in ("date", "timestamp") else "1"
        frame = self.draw.choice(
            [
                f"range between {step} preceding and {step} following",
                f"range between unbounded preceding and {step} preceding",
                f"range between {step} following and unbounded following",
                f"range {step} preceding",
                f"range between current row and {step} following exclude current row",
            ]
        )
        return ["order by ", key, self.draw.choice(["", " desc", " nulls first"])], frame

    def partition(self, scope):
        if not self.chance(0.5):
            return []
        return [optional("partition by ", self.leaf(self.type(scope), scope), " ")]

    def some_order(self, scope):
        """An order that may leave rows equal."""
        if not self.chance(0.8):
            return []
        words = ["", " desc", " nulls first", " desc nulls last"]
        return ["order by ", self.leaf(self.type(scope), scope), self.draw.choice(words)]

    # Groups

    def grouped(self, outer, types, depth):
        source, scope = self.sources(outer, depth)
        keys = []
        if self.chance(0.8) and scope.columns:
            for _ in range(self.draw.choice([1, 1, 2, 3])):
                keys.append(self.key(scope))
        groups = Scope(outer, scope)
        groups.columns = [(key, key.type, key.wild) for key in keys]
        values = [self.any(type, groups, depth) for type in types]
        if keys and self.chance(0.5):
            at = self.draw.randrange(len(values))
            fitting = [key for key in keys if key.type == values[at].type]
            values[at] = self.draw.choice(fitting) if fitting else values[at]
        group_by = self.group_by(keys)
        if "(" in str(group_by).partition("group by")[2] and keys and self.chance(0.3):
            for at, type in enumerate(types):
                if type == "int4":
                    values[at] = expression("int4", "grouping(", keys[0], ")")
        having = ""
        if self.chance(0.25):
            having = optional(" having ", self.condition(groups, min(depth, 1)))
        items = self.items(values)
        query = Node(
            "query",
            "select ",
            items,
            " from ",
            source,
            self.where(scope, depth, 0.4),
            group_by,
            having,
            self.tail(items),
        )
        return self.finish(query, values)

    def key(self, scope):
        """A group key. It has a column in it, and the reducer leaves it whole.

        PostgreSQL 15 folds constant keys into expressions before they become NULL in grouping sets.
        """
        key = self.draw.choice(scope.columns)
        key = expression(key[1], key[0], wild=key[2])
        if self.chance(0.2):
            found = self.function(key.type, scope, 1)
            names = [str(column[0]) for column in scope.columns]
            if any(name in str(found) for name in names):
                key = found
        return Node("key", str(key), type=key.type, wild=key.wild)

    def group_by(self, keys):
        if not keys:
            return self.draw.choice(["", "", " group by ()"])
        kind = self.draw.random()
        head = " group by distinct " if self.chance(0.04) else " group by "
        if kind < 0.65:
            return Node("group", head, listed(keys))
        if kind < 0.85:
            return Node("group", head, self.draw.choice(["rollup (", "cube ("]), listed(keys), ")")
        sets = []
        for _ in range(self.draw.randint(1, 3)):
            chosen = self.draw.sample(keys, self.draw.randint(0, len(keys)))
            sets.append(Node("set", "(", listed(chosen, least=0), ")"))
        sets.append(Node("set", "(", listed(keys), ")"))
        return Node("group", head, "grouping sets (", listed(sets), ")")

    # Set operations, VALUES, WITH

    def set_operation(self, outer, types, depth):
        operator = self.draw.choice(
            [
                " union ",
                " union all ",
                " intersect ",
                " except ",
                " intersect all ",
                " except all ",
                " union all ",
            ]
        )
        left, right = self.query(outer, types, depth - 1), self.query(outer, types, depth - 1)
        columns = [(l[0], l[1], l[2] or r[2]) for l, r in zip(left.columns, right.columns)]
        tail = ""
        if self.chance(0.2):
            numbers = ", ".join(str(at + 1) for at in range(len(types)))
            tail = optional(
                f" order by {numbers}", optional(self.draw.choice(["", " limit 3", " offset 1"]))
            )
        query = Node("query", "(", left, ")", operator, "(", right, ")", tail)
        query.columns = [(f"c{at}", c[1], c[2]) for at, c in enumerate(columns)]
        return query

    def values_query(self, outer, types):
        scope = outer or Scope()
        rows, wild = [], False
        for _ in range(self.draw.randint(1, 3)):
            parts = []
            for type in types:
                value = self.leaf(type, scope)
                wild = wild or value.wild
                parts += [", " if parts else "", value]
            rows.append(Node("values", "(", *parts, ")"))
        query = Node("query", "values ", listed(rows))
        query.columns = [(f"column{at + 1}", type, wild) for at, type in enumerate(types)]
        return query

    def with_queries(self, outer, types, depth, top):
        """WITH, its queries materialized or not, recursive, or ones that change rows."""
        known, parts, recursive = len(self.ctes), [], False
        for _ in range(self.draw.choice([1, 1, 2])):
            name = self.alias("w")
            kind = self.draw.random()
            if kind < 0.25:
                part, columns = self.recursive(name, outer, depth)
                recursive = True
            elif top and kind < 0.45:
                part, columns = self.changing(name)
            else:
                columns_types = [self.type() for _ in range(self.draw.choice([1, 2, 3]))]
                query = self.query(outer, columns_types, depth - 1)
                columns = [(f"c{at}", c[1], c[2]) for at, c in enumerate(query.columns)]
                names = ", ".join(c[0] for c in columns)
                hint = self.draw.choice(
                    [" as (", " as (", " as materialized (", " as not materialized ("]
                )
                part = Node("cte", f"{name}({names}){hint}", query, ")")
            parts.append(part)
            self.ctes.append((name, columns))
        body = self.query(outer, types, depth - 1)
        if str(body).startswith("with "):
            body = self.plain_query(outer, types, depth - 1)
        del self.ctes[known:]
        word = "with recursive " if recursive else "with "
        query = Node("query", word, listed(parts), " ", body)
        query.columns = body.columns
        return query

    def recursive(self, name, outer, depth):
        """A query over itself that ends by a counter."""
        type = self.type()
        start = self.any(type, outer or Scope(), 0)
        columns = [("n", "int4", False), ("v", type, True)]
        scope = Scope()
        scope.columns = [(f"{name}.n", "int4", False), (f"{name}.v", type, True)]
        join, more = "", ""
        if self.chance(0.3):
            other = self.table()
            join = Node("join", ", ", other)
            scope.add(other)
            more = optional(" and ", self.comparison(scope, 0))
        step = self.any(type, scope, 1)
        word = self.draw.choice([" union all ", " union "])
        limit = self.draw.choice([2, 3]) if join else self.draw.choice([3, 5])
        body = Node(
            "cte",
            f"{name}(n, v) as (select 1, ",
            start,
            word,
            f"select {name}.n + 1, ",
            step,
            f" from {name}",
            join,
            f" where {name}.n < {limit}",
            more,
            ")",
        )
        return body, columns

    def changing(self, name):
        """A WITH query that changes rows and returns them."""
        statement = self.draw.choice([self.update, self.delete, self.insert])(returning=True)
        names = ", ".join(c[0] for c in statement.columns)
        return Node("cte", f"{name}({names}) as (", statement, ")"), statement.columns

    # Statements that change rows

    def returning(self, target, scope, always):
        if not always and not self.chance(0.5):
            return "", []
        count = self.draw.choice([1, 2])
        values = [self.any(self.type(scope), scope, 1) for _ in range(count)]
        columns = [(f"c{at}", v.type, v.wild) for at, v in enumerate(values)]
        clause = Node("returning", " returning ", self.items(values), optional=not always)
        return clause, columns

    def target(self):
        """A table to be changed, under an alias, and a scope of it alone."""
        table = self.draw.choice(self.tables)
        alias = self.alias("u")
        scope = Scope()
        scope.columns = [(f"{alias}.{c.name}", c.type, c.wild) for c in table.columns]
        return table, alias, scope

    def change(self, *parts, columns):
        node = Node("change", *parts)
        node.columns = columns
        return node

    def insert(self, returning=False):
        table, alias, scope = self.target()
        types = [c.type for c in table.columns]
        names = ", ".join(c.name for c in table.columns)
        if self.chance(0.3):
            source = self.values_query(None, types)
        else:
            query = self.plain_query(None, types, 1, limited=False)
            items = next(n for n in query.children() if n.sort == "list")
            # In a total order, because of rows with one key the first is inserted.
            kept = [p for p in query.parts if not str(p).startswith(" order by")]
            kept = [p for p in kept if str(p) not in (" for update", "distinct ")]
            if any(isinstance(p, Node) and p.sort == "on" for p in kept):
                kept = [p for p in kept if not (isinstance(p, Node) and p.sort == "on")]
            source = Node("query", *kept, " order by ", positions(items))
        conflict = self.conflict(table, alias, scope) if table.key and self.chance(0.7) else ""
        clause, columns = self.returning(table, scope, returning)
        return self.change(
            f"insert into {table.name} as {alias} ({names}) ",
            source,
            conflict,
            clause,
            columns=columns,
        )

    def conflict(self, table, alias, scope):
        if self.chance(0.4):
            return optional(
                self.draw.choice([" on conflict do nothing", " on conflict (k) do nothing"])
            )
        both = Scope()
        both.columns = scope.columns + [
            (f"excluded.{c.name}", c.type, c.wild) for c in table.columns
        ]
        plain = [c for c in table.columns if c.name not in table.key]
        if not plain:
            return optional(" on conflict do nothing")
        column = self.draw.choice(plain)
        where = optional(" where ", self.condition(both, 1)) if self.chance(0.4) else ""
        return Node(
            "conflict",
            f" on conflict (k) do update set {column.name} = ",
            self.any(column.type, both, 1),
            where,
        )

    def assignments(self, table, scope):
        """SET, of values that depend on the row alone."""
        plain = [c for c in table.columns if c.name not in table.key] or table.columns
        chosen = self.draw.sample(plain, min(len(plain), self.draw.choice([1, 1, 2])))
        if len(chosen) == 2 and self.chance(0.4):
            names = ", ".join(c.name for c in chosen)
            types = [c.type for c in chosen]
            if self.chance(0.5):
                query = self.plain_query(scope, types, 0, limited=True)
                return Node("set", f"({names}) = (", query, ")")
            return Node("set", f"({names}) = ", self.row(types, scope, 1))
        return listed([Node("set", f"{c.name} = ", self.any(c.type, scope, 2)) for c in chosen])

    def update(self, returning=False):
        table, alias, scope = self.target()
        changes = self.assignments(table, scope)
        source, both = self.using(" from ", scope)
        clause, columns = self.returning(table, scope, returning)
        return self.change(
            f"update {table.name} as {alias} set ",
            changes,
            source,
            self.where(both, 2, 0.8),
            clause,
            columns=columns,
        )

    def delete(self, returning=False):
        table, alias, scope = self.target()
        source, both = self.using(" using ", scope)
        clause, columns = self.returning(table, scope, returning)
        return self.change(
            f"delete from {table.name} as {alias}",
            source,
            self.where(both, 2, 0.8),
            clause,
            columns=columns,
        )

    def using(self, word, scope):
        """Other relations beside the target, and the scope of both."""
        if not self.chance(0.4):
            return "", scope
        node, others = self.sources(None, 1)
        both = Scope()
        both.columns = scope.columns + others.columns
        return optional(word, node), both
