"""SQLAlchemy over psycopg 3 and psycopg 2: makes tables, works with objects, reads everything back
from the catalogs, and has Alembic compare the two. Connects as libpq's variables say."""

import datetime
import decimal
import enum
import os

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import (CheckConstraint, ForeignKey, Index, MetaData, Numeric, String, Text, any_,
                        create_engine, func, inspect, select, text)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert
from sqlalchemy.orm import (DeclarativeBase, Mapped, Session, mapped_column, relationship,
                            selectinload)


class Base(DeclarativeBase):
    pass


class Mood(enum.Enum):
    sad = "sad"
    ok = "ok"


class Parent(Base):
    __tablename__ = "sa_parent"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(50), unique=True)
    mood: Mapped[Mood]
    data = mapped_column(JSONB)
    tags = mapped_column(ARRAY(Text))
    at: Mapped[datetime.datetime] = mapped_column(server_default=func.now())
    children: Mapped[list["Child"]] = relationship(back_populates="parent",
                                                   cascade="all, delete-orphan")


class Child(Base):
    __tablename__ = "sa_child"
    id: Mapped[int] = mapped_column(primary_key=True)
    parent_id: Mapped[int] = mapped_column(ForeignKey("sa_parent.id", ondelete="CASCADE"))
    price: Mapped[decimal.Decimal] = mapped_column(Numeric(10, 2))
    parent: Mapped[Parent] = relationship(back_populates="children")
    __table_args__ = (
        CheckConstraint("price >= 0", name="price_ge"),
        Index("sa_dear", "price", postgresql_where=text("price > 10")),
    )


def objects(engine):
    with Session(engine) as s:
        prices = [decimal.Decimal("1.50"), decimal.Decimal("20.00")]
        s.add(Parent(name="a", mood=Mood.ok, data={"x": [1, 2]}, tags=["t", "u"],
                     children=[Child(price=p) for p in prices]))
        s.commit()
        first = Parent.data["x"][0].as_integer() == 1
        parent = s.scalars(select(Parent).options(selectinload(Parent.children)).where(first)).one()
        assert (parent.mood, parent.tags) == (Mood.ok, ["t", "u"])
        assert sorted(c.price for c in parent.children) == prices
        parent.tags = parent.tags + ["v"]
        s.commit()
        assert s.scalar(select(func.count()).where("v" == any_(Parent.tags))) == 1
        upsert = insert(Parent).values(name="a", mood=Mood.sad)
        s.execute(upsert.on_conflict_do_update(index_elements=["name"], set_={"mood": Mood.sad}))
        s.commit()
        s.refresh(parent)
        assert parent.mood is Mood.sad
        s.delete(parent)
        s.commit()
        assert s.scalar(select(func.count()).select_from(Child)) == 0


def reflection(engine):
    seen = inspect(engine)
    assert {"sa_parent", "sa_child"} <= set(seen.get_table_names())
    columns = {c["name"]: c for c in seen.get_columns("sa_parent")}
    assert columns["id"]["default"] == "nextval('sa_parent_id_seq'::regclass)"
    assert columns["mood"]["type"].enums == ["sad", "ok"], columns["mood"]
    assert not columns["name"]["nullable"] and columns["data"]["nullable"]
    assert seen.get_pk_constraint("sa_parent")["constrained_columns"] == ["id"]
    (key,) = seen.get_foreign_keys("sa_child")
    assert (key["referred_table"], key["options"]) == ("sa_parent", {"ondelete": "CASCADE"})
    (index,) = seen.get_indexes("sa_child")
    assert index["dialect_options"]["postgresql_where"] == "(price > (10)::numeric)", index
    assert seen.get_unique_constraints("sa_parent")[0]["column_names"] == ["name"]
    assert seen.get_check_constraints("sa_child")[0]["name"] == "price_ge"
    assert [e["labels"] for e in seen.get_enums()] == [["sad", "ok"]]
    assert seen.get_domains() == [] and seen.get_materialized_view_names() == []
    MetaData().reflect(engine)
    with engine.connect() as connection:
        # Others may have tables beside these.
        own = {"include_name": lambda name, kind, _: kind != "table" or name.startswith("sa_")}
        context = MigrationContext.configure(connection, opts=own)
        found = compare_metadata(context, Base.metadata)
    assert found == [], found


for driver in ("psycopg", "psycopg2"):
    user, port, name = (os.environ[k] for k in ("PGUSER", "PGPORT", "PGDATABASE"))
    engine = create_engine(f"postgresql+{driver}://{user}@{os.environ['PGHOST']}:{port}/{name}")
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    objects(engine)
    reflection(engine)
    Base.metadata.drop_all(engine)
    engine.dispose()
    print(f"{driver}: tables, objects, reflection, comparison")
