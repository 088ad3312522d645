"""Generated tables and their rows, for the query fuzzer.

Columns have few names, so that USING and NATURAL find partners, and few values, so that joins and
groups find equals. Tame columns hold small numbers and exact fractions: sums of them come out the
same in any order. Wild columns hold extremes.
"""

from dataclasses import dataclass, field

TAME = {
    "bool": ["true", "false"],
    "int2": ["0", "1", "2", "3", "7", "-1", "-5"],
    "int4": ["0", "1", "2", "3", "5", "10", "-1", "-7", "42"],
    "int8": ["0", "1", "2", "3", "5", "10", "-1", "100"],
    "numeric": ["0", "1", "2", "2.50", "0.25", "-1.5", "3", "10.00"],
    "float4": ["0", "1", "2", "2.5", "-0.5", "3", "'NaN'", "'Infinity'"],
    "float8": ["0", "1", "2", "2.5", "-0.25", "3", "'NaN'", "'-Infinity'", "'Infinity'"],
    "text": ["''", "'a'", "'b'", "'ab'", "'A'", "'a '", "' a'", "'é'", "'a%b'", "'zz'", "'10'"],
    "varchar": ["''", "'a'", "'b'", "'ab'", "'B'", "'a '", "'ü'", "'_'"],
    "char": ["''", "'a'", "'b'", "'ab'", "'abcd'", "'a '", "'Z'"],
    "date": ["'2020-01-01'", "'2020-02-29'", "'1999-12-31'", "'2021-06-15'"],
    "timestamp": ["'2020-01-01 00:00'", "'2020-02-29 12:34:56.789'", "'1999-12-31 23:59:59'"],
    "timestamptz": ["'2020-01-01 00:00+00'", "'2020-03-29 01:30+00'", "'1970-01-01 00:00+02'"],
    "bytea": ["''", r"'\x00'", r"'\x61'", r"'\x6162ff'"],
    "uuid": [
        "'00000000-0000-0000-0000-000000000000'",
        "'00000000-0000-0000-0000-000000000001'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    ],
}
WILD = {
    "int2": ["32767", "-32768"],
    "int4": ["2147483647", "-2147483648"],
    "int8": ["9223372036854775807", "-9223372036854775808"],
    "numeric": [
        "1e30",
        "-99999999999999999999.999999",
        "'NaN'",
        "'Infinity'",
        "'-Infinity'",
        "1e-20",
    ],
    "float4": ["'-0'", "3.4028235e38", "1e-45", "0.1", "1.1"],
    "float8": ["'-0'", "1.7976931348623157e308", "5e-324", "0.1", "1e15", "123456789.123456789"],
    "date": ["'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'"],
    "timestamp": ["'infinity'", "'-infinity'", "'294276-12-31 23:59:59.999999'"],
    "timestamptz": ["'infinity'", "'-infinity'", "'0001-01-01 00:00+00'"],
}
TYPES = list(TAME)
# How often each is a column's type.
WEIGHTS = {"int4": 6, "text": 4, "int8": 3, "numeric": 3, "bool": 2, "float8": 2}
DECLARED = {"char": "char(4)", "varchar": "varchar(8)"}
NAMES = ["a", "b", "c", "d", "e", "f", "g"]


def declared(type):
    return DECLARED.get(type, type)


@dataclass
class TableColumn:
    name: str
    type: str
    wild: bool = False
    not_null: bool = False


@dataclass
class Table:
    """A table, its keys and indexes, and its rows as texts of literals."""

    name: str
    columns: list
    key: list = field(default_factory=list)
    indexes: list = field(default_factory=list)
    rows: list = field(default_factory=list)

    def statements(self):
        """What makes the table and its rows."""
        parts = [
            f"{c.name} {declared(c.type)}" + (" not null" if c.not_null else "")
            for c in self.columns
        ]
        if self.key:
            parts.append(f"primary key ({', '.join(self.key)})")
        texts = [f"create table {self.name} ({', '.join(parts)})"]
        for number, index in enumerate(self.indexes):
            columns = ", ".join(index)
            texts.append(f"create index {self.name}_i{number} on {self.name} ({columns})")
        if self.rows:
            rows = ", ".join("(" + ", ".join(row) + ")" for row in self.rows)
            texts.append(f"insert into {self.name} values {rows}")
        return texts

    def without_column(self, name):
        """A copy that lacks a column; None if a key or an index needs it."""
        if name in self.key or any(name in index for index in self.indexes):
            return None
        if len(self.columns) == 1:
            return None
        at = [c.name for c in self.columns].index(name)
        rows = [row[:at] + row[at + 1 :] for row in self.rows]
        columns = [c for c in self.columns if c.name != name]
        return Table(self.name, columns, self.key, self.indexes, rows)


def literal(draw, type, wild=False):
    pool = TAME[type] + (WILD.get(type, []) * 2 if wild else [])
    return draw.choice(pool)


def draw_value(draw, column):
    if not column.not_null and draw.random() < 0.2:
        return "null"
    return literal(draw, column.type, column.wild)


def draw_table(draw, number):
    # A column that several tables have under one name mostly has one type.
    usual = {"a": "int4", "b": "text", "c": "int8", "d": "numeric"}
    columns = []
    for name in draw.sample(NAMES, draw.randint(2, 6)):
        weights = [WEIGHTS.get(type, 1) for type in TYPES]
        type = draw.choices(TYPES, weights)[0]
        if name in usual and draw.random() < 0.7:
            type = usual[name]
        wild = type in WILD and draw.random() < 0.15
        columns.append(TableColumn(name, type, wild, draw.random() < 0.15))
    table = Table(f"t{number}", columns)
    if draw.random() < 0.6:
        columns.insert(0, TableColumn("k", "int4", not_null=True))
        table.key = ["k"]
    plain = [c.name for c in columns]
    for _ in range(draw.choice([0, 0, 1, 2])):
        table.indexes.append(draw.sample(plain, min(len(plain), draw.choice([1, 1, 2]))))
    for row in range(draw.choice([0, 1, 4, 6, 10, 16])):
        values = [draw_value(draw, c) for c in columns]
        if table.key:
            values[0] = str(row + 1)
        table.rows.append(values)
    return table


def draw_schema(draw):
    return [draw_table(draw, number) for number in range(1, draw.randint(3, 5))]
