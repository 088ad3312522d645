"""Draws expressions of a wanted type over what is in scope.

Nothing is drawn whose answer PostgreSQL leaves open: no order of rows that is not asked for, no sum
of inexact numbers, nothing volatile.
"""

import fuzz_schema
from fuzz_tree import Node, expression, listed, optional

INTEGERS = ["int2", "int4", "int8"]
NUMBERS = INTEGERS + ["numeric", "float4", "float8"]
STRINGS = ["text", "varchar", "char"]
TIMES = ["date", "timestamp", "timestamptz"]
# What an aggregate of each type may be, with the type of its argument; `{}` is the argument.
AGGREGATES = {
    "int8": [
        ("count({})", None),
        ("count(distinct {})", None),
        ("sum({})", "int4"),
        ("sum(distinct {})", "int4"),
        ("sum({})", "int2"),
        ("max({})", "int8"),
        ("regr_count({}, 1)", "float8"),
    ],
    "int4": [
        ("min({})", "int4"),
        ("max({})", "int4"),
        ("bit_or({})", "int4"),
        ("bit_and({})", "int4"),
    ],
    "int2": [("min({})", "int2"), ("max({})", "int2")],
    "numeric": [
        ("sum({})", "int8"),
        ("sum({})", "numeric"),
        ("avg({})", "int4"),
        ("avg({})", "numeric"),
        ("min({})", "numeric"),
        ("max({})", "numeric"),
        ("sum(distinct {})", "numeric"),
        ("stddev_samp({})", "int4"),
        ("var_pop({})", "int4"),
        ("variance({})", "numeric"),
    ],
    "float8": [
        ("sum({})", "float8"),
        ("avg({})", "float8"),
        ("min({})", "float8"),
        ("max({})", "float8"),
        ("avg({})", "float4"),
    ],
    "float4": [("sum({})", "float4"), ("max({})", "float4")],
    "text": [
        ("string_agg({0}, ',' order by {0})", "text"),
        ("min({})", "text"),
        ("max({})", "text"),
        ("string_agg(distinct {0}, '-' order by {0})", "text"),
        ("array_agg({0} order by {0})::text", "int4"),
        ("array_agg(distinct {0} order by {0} desc)::text", "text"),
    ],
    "char": [("min({})", "char"), ("max({})", "char")],
    "bool": [("bool_and({})", "bool"), ("bool_or({})", "bool"), ("every({})", "bool")],
    "date": [("min({})", "date"), ("max({})", "date")],
    "timestamp": [("min({})", "timestamp"), ("max({})", "timestamp")],
    "timestamptz": [("max({})", "timestamptz")],
}
# Functions and operators: by result, templates and the types of their arguments. A star before the
# template: the result may be inexact or overflow.
FUNCTIONS = {
    "int2": [("({})::int2", ["bool_int"])],
    "int4": [
        ("({} + {})", ["int4", "int4"]),
        ("({} - {})", ["int4", "int4"]),
        ("({} * 2)", ["int4"]),
        ("({} / nullif({}, 0))", ["int4", "int4"]),
        ("({} % nullif({}, 0))", ["int4", "int4"]),
        ("(- {})", ["int4"]),
        ("abs({})", ["int4"]),
        ("length({})", ["text"]),
        ("strpos({}, {})", ["text", "text"]),
        ("octet_length({})", ["bytea"]),
        ("({} - {})", ["date", "date"]),
        ("({})::int4", ["bool"]),
        ("({} & {})", ["int4", "int4"]),
        ("({} # {})", ["int4", "int4"]),
        ("(~ {})", ["int4"]),
        ("({} << 1)", ["int4"]),
        ("extract(month from {})::int4", ["timestamp"]),
        ("ascii({})", ["text"]),
        ("({} + {})", ["int2", "int4"]),
        ("char_length({})", ["char"]),
    ],
    "int8": [
        ("({} + {})", ["int8", "int4"]),
        ("({} - {})", ["int8", "int8"]),
        ("({})::int8", ["int4"]),
        ("abs({})", ["int8"]),
        ("mod({}, nullif({}, 0))", ["int8", "int8"]),
        ("({} * {})", ["int8", "int2"]),
    ],
    "numeric": [
        ("({} + {})", ["numeric", "numeric"]),
        ("({} - {})", ["numeric", "int4"]),
        ("({} * {})", ["numeric", "numeric"]),
        ("round({}, 1)", ["numeric"]),
        ("trunc({}, 1)", ["numeric"]),
        ("abs({})", ["numeric"]),
        ("ceil({})", ["numeric"]),
        ("({} / nullif({}, 0))", ["numeric", "numeric"]),
        ("({})::numeric", ["int4"]),
        ("sign({})", ["numeric"]),
        ("({})::numeric(12,3)", ["int4"]),
        ("(- {})", ["numeric"]),
        ("mod({}, nullif({}, 0))", ["numeric", "int4"]),
        ("div({}, nullif({}, 0))", ["numeric", "numeric"]),
    ],
    "float8": [
        ("({} + {})", ["float8", "float8"]),
        ("({} - {})", ["float8", "int4"]),
        ("abs({})", ["float8"]),
        ("({} * 2)", ["float8"]),
        ("({})::float8", ["int4"]),
        ("floor({})", ["float8"]),
        ("*({} / nullif({}, 0))", ["float8", "float8"]),
        ("*sqrt(abs({}))", ["float8"]),
        ("({})::float8", ["float4"]),
        ("*({})::float8", ["numeric"]),
    ],
    "float4": [("({} + {})", ["float4", "float4"]), ("({})::float4", ["int2"])],
    "text": [
        ("({} || {})", ["text", "text"]),
        ("upper({})", ["text"]),
        ("lower({})", ["varchar"]),
        ("substr({}, 1, 2)", ["text"]),
        ("({})::text", ["int4"]),
        ("({})::text", ["numeric"]),
        ("({})::text", ["bool"]),
        ("replace({}, 'a', {})", ["text", "text"]),
        ("left({}, 1)", ["text"]),
        ("lpad({}, 4, 'x')", ["text"]),
        ("trim({})", ["text"]),
        ("reverse({})", ["text"]),
        ("({} || {})", ["text", "int4"]),
        ("concat({}, {}, {})", ["text", "int4", "bool"]),
        ("concat_ws('-', {}, {})", ["text", "text"]),
        ("repeat({}, 2)", ["text"]),
        ("({})::text", ["date"]),
        ("({})::text", ["float8"]),
        ("({})::text", ["timestamp"]),
        ("md5({})", ["text"]),
        ("initcap({})", ["text"]),
        ("({})::text", ["char"]),
        ("({})::text", ["uuid"]),
        ("split_part({}, 'b', 1)", ["text"]),
        ("encode({}, 'hex')", ["bytea"]),
        ("quote_literal({})", ["text"]),
        ("({} || {})", ["char", "varchar"]),
        ("rtrim({}, 'a')", ["text"]),
    ],
    "varchar": [("({})::varchar(3)", ["text"]), ("({})::varchar", ["int4"])],
    "char": [("({})::char(4)", ["text"]), ("({})::char(2)", ["varchar"])],
    "date": [
        ("({} + {})", ["date", "int2"]),
        ("({} - 1)", ["date"]),
        ("({})::date", ["timestamp"]),
    ],
    "timestamp": [
        ("date_trunc('month', {})", ["timestamp"]),
        ("({})::timestamp", ["date"]),
        ("({} + interval '1 day')", ["timestamp"]),
        ("({} - interval '1 month 02:00')", ["timestamp"]),
        ("({} at time zone 'UTC')", ["timestamptz"]),
    ],
    "timestamptz": [
        ("({} at time zone 'UTC')", ["timestamp"]),
        ("({} + interval '36 hours')", ["timestamptz"]),
    ],
    "bytea": [("({} || {})", ["bytea", "bytea"]), ("substr({}, 1, 1)", ["bytea"])],
    "bool": [
        ("({} like {})", ["text", "text"]),
        ("({} ilike 'A%')", ["text"]),
        ("({} ~ '^a')", ["text"]),
        ("({} not like '%b%')", ["varchar"]),
        ("starts_with({}, {})", ["text", "text"]),
        ("isfinite({})", ["timestamp"]),
        ("({} similar to '(a|b)%')", ["text"]),
    ],
}


class Scope:
    """What expressions may name: relations of one query level, and the levels around it.

    In a grouped query the relations' columns are the group keys, and `ungrouped` is the scope that
    arguments of aggregates are drawn from.
    """

    def __init__(self, parent=None, ungrouped=None):
        self.parent = parent
        self.ungrouped = ungrouped
        # (text to refer to it, type, wild)
        self.columns = []
        # Names of tables, by which whole rows can be named.
        self.aliases = []

    def add(self, relation):
        self.columns += relation.columns
        names = {str(name).split(".")[0] for name, _, _ in relation.columns}
        self.aliases += sorted(name for name in names if name.startswith("r"))

    def of_type(self, type):
        return [c for c in self.columns if type is None or c[1] == type]

    def plain(self):
        """The scope as arguments of aggregates see it: no aggregates in it, and none around it."""
        scope = Scope()
        scope.columns = list(self.columns)
        scope.aliases = list(self.aliases)
        return scope

    def levels(self):
        scope = self
        while scope:
            yield scope
            scope = scope.parent


class Expressions:
    """Draws expressions.

    A class that inherits draws the queries in them: `subquery(scope, types, depth, single)`, and
    `ordered(scope, type, depth)` of one column in a total order.
    """

    def __init__(self, draw, tables):
        self.draw = draw
        self.tables = tables
        self.numbers = 0

    def alias(self, prefix):
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    def chance(self, probability):
        return self.draw.random() < probability

    def type(self, scope=None):
        """A type, mostly one that a column in scope has, or in some table."""
        if scope and scope.columns and self.chance(0.9):
            return self.draw.choice(scope.columns)[1]
        if self.chance(0.85):
            return self.draw.choice(self.draw.choice(self.tables).columns).type
        weights = [fuzz_schema.WEIGHTS.get(type, 1) for type in fuzz_schema.TYPES]
        return self.draw.choices(fuzz_schema.TYPES, weights)[0]

    def column(self, scope, type):
        """A column of the type, of this level or of one around it; None if there is none."""
        levels = [level.of_type(type) for level in scope.levels()]
        near, far = levels[0], [c for level in levels[1:] for c in level]
        if not near and not far:
            return None
        outer = far and (not near or self.chance(0.25))
        name, type, wild = self.draw.choice(far if outer else near)
        if not outer and isinstance(name, str) and self.chance(0.1):
            # Without its table, where no other table here has such a column.
            bare = name.split(".")[-1]
            if [str(c[0]).split(".")[-1] for c in scope.columns].count(bare) == 1:
                name = bare
        return expression(type, name, wild=wild)

    def literal(self, type):
        value = fuzz_schema.literal(self.draw, type, self.chance(0.05))
        if type in ("int4", "numeric", "bool") and not value.startswith("'"):
            bare = value if type != "numeric" or "." in value or "e" in value else f"{value}.0"
            return expression(type, f"({bare})" if bare.startswith("-") else bare)
        quoted = value if value.startswith("'") else f"'{value}'"
        return expression(type, f"{quoted}::{type if type != 'char' else 'char(4)'}")

    def leaf(self, type, scope, convert=True):
        """A column, a constant, or a function of such if there is no column of the type."""
        if self.chance(0.04):
            return expression(type, f"null::{type}")
        if self.chance(0.85):
            found = self.column(scope, type)
            if found:
                return found
            if convert and self.chance(0.5) and type in FUNCTIONS:
                return self.function(type, scope, 0)
        return self.literal(type)

    def any(self, type, scope, depth):
        """An expression of the type."""
        if scope.ungrouped and self.chance(0.4):
            found = self.aggregate(type, scope)
            if found:
                return found
        if depth < 0:
            return self.leaf(type, scope, convert=False)
        if depth == 0 or self.chance(0.35):
            return self.leaf(type, scope)
        kind = self.draw.random()
        if type == "bool" and kind < 0.75:
            return self.condition(scope, depth)
        if kind < 0.60:
            return self.function(type, scope, depth)
        if kind < 0.72:
            return self.choice(type, scope, depth)
        if kind < 0.86 and depth >= 2:
            if type == "text" and self.chance(0.15):
                query = self.ordered(scope, self.type(scope), depth - 2)
                return expression(type, "array(", query, ")::text")
            query = self.subquery(scope, [type], depth - 2, single=True)
            return expression(type, "(", query, ")", wild=query.columns[0][2])
        return self.leaf(type, scope)

    def function(self, type, scope, depth):
        if type not in FUNCTIONS:
            return self.leaf(type, scope)
        template, types = self.draw.choice(FUNCTIONS[type])
        if types == ["bool_int"]:
            return expression(type, "(", self.any("int4", scope, 0), " % 7)::int2")
        parts = template.lstrip("*").split("{}")
        arguments = [self.any(t, scope, depth - 1) for t in types]
        mixed = [parts[0]]
        for argument, part in zip(arguments, parts[1:]):
            mixed += [argument, part]
        return expression(type, *mixed, wild=template.startswith("*"))

    def choice(self, type, scope, depth):
        """CASE, COALESCE and their like."""
        draw = lambda: self.any(type, scope, depth - 1)
        kind = self.draw.randrange(5)
        if kind == 0:
            return expression(type, "coalesce(", listed([draw(), draw()]), ")")
        if kind == 1:
            return expression(type, "nullif(", draw(), ", ", draw(), ")")
        if kind == 2 and type != "bool":
            return expression(
                type, self.draw.choice(["greatest(", "least("]), listed([draw(), draw()]), ")"
            )
        if kind == 3:
            other = self.type(scope)
            when = [
                Node("when", " when ", self.any(other, scope, depth - 1), " then ", draw())
                for _ in range(self.draw.randint(1, 2))
            ]
            head = self.any(other, scope, depth - 1)
            return expression(
                type, "case ", head, listed(when, ""), optional(" else ", draw()), " end"
            )
        when = [
            Node("when", " when ", self.condition(scope, depth - 1), " then ", draw())
            for _ in range(self.draw.randint(1, 2))
        ]
        return expression(type, "case", listed(when, ""), optional(" else ", draw()), " end")

    def aggregate(self, type, scope, within=None):
        """An aggregate of the type over the ungrouped scope; None if there is none."""
        source = scope.ungrouped if within is None else within
        if type not in AGGREGATES:
            return None
        if type == "int8" and self.chance(0.2):
            row = self.draw.choice(source.aliases) + ".*" if source.aliases else "*"
            return expression(
                type, f"count({row if self.chance(0.3) else '*'})", self.filter(source)
            )
        template, wanted = self.draw.choice(AGGREGATES[type])
        wanted = wanted or self.type(source)
        if template.startswith(("min(", "max(", "count(")):
            argument = self.any(wanted, source.plain(), self.draw.choice([0, 0, 1]))
        else:
            argument = self.tame(wanted, source)
        parts = template.replace("{0}", "{}").split("{}")
        mixed = [parts[0]]
        for part in parts[1:]:
            mixed += [argument, part]
        if template.endswith("::text"):
            return expression(
                type,
                "(",
                *mixed[:-1],
                mixed[-1].removesuffix("::text"),
                self.filter(source),
                ")::text",
            )
        return expression(type, *mixed, self.filter(source))

    def filter(self, source):
        if not self.chance(0.15):
            return ""
        return optional(" filter (where ", self.condition(source, 0), ")")

    def tame(self, type, source):
        """An argument whose sum is the same in every order."""
        for _ in range(5):
            found = self.any(type, source.plain(), self.draw.choice([0, 0, 1]))
            if not found.wild:
                return found
        return self.literal_tame(type)

    def literal_tame(self, type):
        value = fuzz_schema.TAME[type][0]
        quoted = value if value.startswith("'") else f"'{value}'"
        return expression(type, f"{quoted}::{type if type != 'char' else 'char(4)'}")

    # Conditions

    def condition(self, scope, depth):
        """An expression of the type bool that is no plain column or constant, mostly."""
        if depth <= 0:
            return self.comparison(scope, 0)
        kind = self.draw.random()
        if kind < 0.34:
            return self.comparison(scope, depth)
        if kind < 0.50:
            operator = self.draw.choice([" and ", " or "])
            pair = [self.condition(scope, depth - 1) for _ in range(2)]
            return expression("bool", "(", listed(pair, operator), ")")
        if kind < 0.56:
            return expression("bool", "(not ", self.condition(scope, depth - 1), ")")
        if kind < 0.68:
            return self.test(scope, depth)
        if kind < 0.74:
            return self.rows(scope, depth)
        if kind < 0.94:
            return self.subquery_condition(scope, depth)
        return self.function("bool", scope, depth)

    def pair(self, scope, depth):
        """Two expressions that may be compared."""
        left = self.type(scope)
        right = left
        for family in (NUMBERS, STRINGS, TIMES):
            if left in family and self.chance(0.25):
                right = self.draw.choice(family)
        return self.any(left, scope, depth - 1), self.any(right, scope, depth - 1)

    def comparison(self, scope, depth):
        left, right = self.pair(scope, depth)
        operators = [
            " = ",
            " = ",
            " = ",
            " <> ",
            " < ",
            " <= ",
            " > ",
            " >= ",
            " is distinct from ",
            " is not distinct from ",
        ]
        return expression("bool", "(", left, self.draw.choice(operators), right, ")")

    def test(self, scope, depth):
        type = self.type(scope)
        subject = self.any(type, scope, depth - 1)
        draw = lambda: self.any(type, scope, depth - 1)
        kind = self.draw.randrange(5)
        if kind == 0:
            word = self.draw.choice([" between ", " not between ", " between symmetric "])
            return expression("bool", "(", subject, word, draw(), " and ", draw(), ")")
        if kind == 1:
            word = self.draw.choice([" in (", " not in ("])
            items = [draw() for _ in range(self.draw.randint(1, 4))]
            return expression("bool", "(", subject, word, listed(items), "))")
        if kind == 2 and scope.aliases and not scope.ungrouped and self.chance(0.3):
            word = self.draw.choice([" is null)", " is not null)", ".* is distinct from null)"])
            return expression("bool", f"({self.draw.choice(scope.aliases)}{word}")
        if kind == 2:
            word = self.draw.choice(
                [" is true)", " is not true)", " is unknown)", " is not false)"]
            )
            return expression("bool", "(", self.any("bool", scope, depth - 1), word)
        if kind == 3:
            word = self.draw.choice([" = any (array[", " <> all (array[", " < any (array["])
            items = [draw() for _ in range(self.draw.randint(1, 3))]
            return expression("bool", "(", subject, word, listed(items), "]))")
        return expression("bool", "(", subject, self.draw.choice([" is null)", " is not null)"]))

    def rows(self, scope, depth):
        """Comparisons of rows."""
        types = [self.type(scope) for _ in range(self.draw.choice([2, 2, 3]))]
        row = lambda: self.row(types, scope, depth)
        kind = self.draw.randrange(4)
        if kind == 0:
            word = self.draw.choice([" in (", " not in ("])
            return expression("bool", "(", row(), word, listed([row(), row()]), "))")
        if kind == 1:
            word = self.draw.choice([" is null)", " is not null)"])
            return expression("bool", "(", row(), word)
        if kind == 2 and depth >= 2:
            word = self.draw.choice([" in (", " not in ("])
            query = self.subquery(scope, types, depth - 2, single=False)
            return expression("bool", "(", row(), word, query, "))")
        operators = [" = ", " <> ", " < ", " <= ", " > ", " >= ", " is distinct from "]
        return expression("bool", "(", row(), self.draw.choice(operators), row(), ")")

    def row(self, types, scope, depth):
        parts = []
        for type in types:
            parts += [", " if parts else "", self.any(type, scope, depth - 1)]
        return Node("row", self.draw.choice(["(", "row("]), *parts, ")")

    def subquery_condition(self, scope, depth):
        """EXISTS, IN, ANY and ALL."""
        kind = self.draw.random()
        if kind < 0.35:
            word = self.draw.choice(["exists (", "exists (", "not exists ("])
            types = [self.type(scope) for _ in range(self.draw.choice([1, 1, 2]))]
            return expression(
                "bool", "(", word, self.subquery(scope, types, depth - 1, False), "))"
            )
        type = self.type(scope)
        subject = self.any(type, scope, depth - 1)
        query = self.subquery(scope, [type], depth - 1, False)
        if kind < 0.75:
            return expression(
                "bool", "(", subject, self.draw.choice([" in (", " not in ("]), query, "))"
            )
        operator = self.draw.choice(["=", "<>", "<", ">=", ">"])
        word = self.draw.choice(["any", "all", "some"])
        return expression("bool", "(", subject, f" {operator} {word} (", query, "))")
