// TypeORM: makes a schema of entities, finds nothing to change in it, writes and reads; makes it that of
// entities that have changed; migrations.
require("reflect-metadata");
const assert = require("node:assert");
const { DataSource, EntitySchema, In, Like, Between, IsNull, Raw } = require("typeorm");
const { PGHOST: host, PGPORT: port, PGUSER: username, PGDATABASE: database } = process.env;
const entities = (later) => {
  const User = new EntitySchema({
    name: "User",
    tableName: "users",
    schema: "to",
    columns: {
      id: { type: Number, primary: true, generated: true },
      uid: { type: "uuid", generated: "uuid" },
      name: {
        type: "varchar",
        length: 40,
        comment: later ? "a name" : "the name",
        ...(later ? { default: "x" } : {}),
      },
      mood: { type: "enum", enum: later ? ["sad", "ok", "new"] : ["sad", "ok"], default: "ok" },
      moods: { type: "enum", enum: ["a", "b"], array: true, nullable: true },
      data: { type: "jsonb", default: {}, nullable: true },
      tags: { type: "text", array: true, default: "{}" },
      price: { type: "numeric", precision: 10, scale: later ? 3 : 2, nullable: true },
      born: { type: "date", nullable: true },
      seen: { type: "timestamptz", precision: 3, default: () => "now()" },
      pause: { type: "interval", nullable: true },
      blob: { type: "bytea", nullable: true },
      span: { type: "int4range", nullable: true },
      flag: { type: "bool", default: false },
      n: { type: "bigint", default: later ? 2 : 1 },
      r: { type: "float8", nullable: true, ...(later ? { default: 0 } : {}) },
      made: { type: "timestamp", createDate: true },
      changed: { type: "timestamp", updateDate: true },
      gone: { type: "timestamp", deleteDate: true, nullable: true },
      version: { type: Number, version: true },
      ...(later
        ? { more: { type: "int", nullable: true } }
        : { less: { type: "char", length: 3, nullable: true } }),
    },
    relations: {
      posts: { type: "one-to-many", target: "Post", inverseSide: "owner", cascade: true },
      profile: { type: "one-to-one", target: "Profile", joinColumn: true, nullable: true, cascade: true },
    },
    indices: [
      { name: "users_name", columns: ["name"], unique: true },
      { name: "users_part", columns: ["n", "flag"], where: later ? '"flag" = true' : '"flag" = false' },
    ],
    uniques: [{ name: "users_uid", columns: ["uid"] }],
    checks: [{ name: "users_n", expression: later ? '"n" > -2' : '"n" > -1' }],
  });
  const Post = new EntitySchema({
    name: "Post",
    tableName: "posts",
    schema: "to",
    columns: { id: { type: "uuid", primary: true, generated: "uuid" }, title: { type: "text" } },
    relations: {
      owner: {
        type: "many-to-one",
        target: "User",
        inverseSide: "posts",
        onDelete: later ? "SET NULL" : "CASCADE",
        nullable: true,
      },
      tags: {
        type: "many-to-many",
        target: "Tag",
        joinTable: { name: "post_tags", schema: "to" },
        cascade: true,
      },
    },
  });
  const Profile = new EntitySchema({
    name: "Profile",
    tableName: "profiles",
    schema: "to",
    columns: { id: { type: Number, primary: true, generated: "identity" }, text: { type: "text" } },
  });
  const Tag = new EntitySchema({
    name: "Tag",
    tableName: "tags",
    schema: "to",
    columns: { label: { type: "varchar", primary: true } },
  });
  const Tree = new EntitySchema({
    name: "Node",
    tableName: "nodes",
    schema: "to",
    columns: { id: { type: Number, primary: true, generated: true }, label: { type: "text" } },
    trees: [{ type: "closure-table" }],
    relations: {
      parent: { type: "many-to-one", target: "Node", treeParent: true },
      children: { type: "one-to-many", target: "Node", treeChildren: true, inverseSide: "parent" },
    },
  });
  const View = new EntitySchema({
    name: "Names",
    type: "view",
    tableName: "names",
    schema: "to",
    expression: later ? 'select name, n from "to".users' : 'select name from "to".users',
    columns: { name: { type: "varchar" } },
  });
  return [User, Post, Profile, Tag, Tree, View];
};
const make = (later, more) =>
  new DataSource({
    type: "postgres",
    host,
    port: Number(port),
    username,
    database,
    schema: "to",
    entities: entities(later),
    ...more,
  });
const changes = async (source) =>
  (await source.driver.createSchemaBuilder().log()).upQueries.map((q) => q.query);
(async () => {
  let source = make(false);
  await source.initialize();
  await source.query('drop schema if exists "to" cascade');
  await source.query('create schema "to"');
  await source.synchronize();
  assert.deepStrictEqual(await changes(source), []);
  await source.synchronize();
  const users = () => source.getRepository("User");
  {
    const u = await users().save({
      name: "a",
      data: { k: [1, 2] },
      tags: ["x", "y,z"],
      price: "1.50",
      born: "2020-01-02",
      pause: { hours: 1 },
      blob: Buffer.from([0, 255]),
      span: "[1,5)",
      moods: ["a", "b"],
      profile: { text: "p" },
      posts: [{ title: "t1", tags: [{ label: "l1" }, { label: "l2" }] }, { title: "t2" }],
    });
    const back = await users().findOne({
      where: { id: u.id },
      relations: { profile: true, posts: { tags: true } },
      order: { posts: { title: "ASC" } },
    });
    assert.strictEqual(back.posts[0].tags.length, 2);
    assert.deepStrictEqual(back.moods, ["a", "b"]);
    assert.deepStrictEqual(back.tags, ["x", "y,z"]);
    back.name = "b";
    back.posts.pop();
    await users().save(back);
    await users().upsert([{ name: "b", n: 5 }, { name: "c" }], ["name"]);
    await users().softDelete({ name: "c" });
    assert.strictEqual(await users().count(), 1);
    await users().restore({ name: "c" });
    const [, n] = await users().findAndCount({
      where: [
        { name: In(["b", "c"]) },
        { born: IsNull() },
        { n: Between(1, 9) },
        { name: Like("%") },
        { data: Raw((a) => `${a} @> '{"k":[1]}'`) },
      ],
      take: 1,
      skip: 1,
      order: { name: "ASC" },
      relations: { posts: true },
    });
    assert.strictEqual(n, 2);
  }
  {
    const t = source.getTreeRepository("Node");
    const a = await t.save({ label: "a" });
    const b = await t.save({ label: "b", parent: a });
    await t.save({ label: "c", parent: b });
    assert.strictEqual((await t.findTrees())[0].children[0].children[0].label, "c");
    assert.strictEqual(await t.countDescendants(a), 3);
  }
  {
    const q = users()
      .createQueryBuilder("u")
      .leftJoinAndSelect("u.posts", "p")
      .where("u.name ILIKE :n", { n: "%" })
      .andWhere((qb) => "u.id in " + qb.subQuery().select("x.id").from("User", "x").getQuery())
      .orderBy("u.name", "DESC", "NULLS LAST")
      .take(1);
    assert.strictEqual((await q.getManyAndCount())[1], 2);
    await source.transaction("REPEATABLE READ", async (m) => {
      const u = await m.findOne("User", {
        where: { name: "b" },
        lock: { mode: "pessimistic_write", onLocked: "skip_locked" },
      });
      await m.increment("User", { id: u.id }, "n", 2);
      await m
        .createQueryBuilder()
        .update("User")
        .set({ flag: true })
        .where("id = :id", { id: u.id })
        .returning("*")
        .execute();
      await m.createQueryBuilder().insert().into("User").values({ name: "d" }).orIgnore().execute();
    });
    const s = await users().createQueryBuilder("u").stream();
    let n = 0;
    for await (const r of s) n++;
    assert.strictEqual(n, 3);
    assert.strictEqual(await source.getRepository("Names").count(), 3);
  }
  await source.destroy();
  source = make(true);
  await source.initialize();
  assert.ok((await changes(source)).length > 10);
  await source.synchronize();
  assert.deepStrictEqual(await changes(source), []);
  await source.destroy();
  class M1 {
    name = "M1700000000000";
    async up(r) {
      await r.query('create table "to".m (id serial primary key)');
      const { TableColumn, TableIndex, TableForeignKey, Table } = require("typeorm");
      await r.addColumn(
        "to.m",
        new TableColumn({ name: "x", type: "varchar", length: "10", isNullable: true }),
      );
      await r.createIndex("to.m", new TableIndex({ name: "m_x", columnNames: ["x"] }));
      await r.renameColumn("to.m", "x", "y");
      await r.changeColumn("to.m", "y", new TableColumn({ name: "y", type: "int", default: 3 }));
      await r.createTable(
        new Table({
          name: "to.k",
          columns: [
            { name: "id", type: "int", isPrimary: true },
            { name: "m", type: "int" },
          ],
          foreignKeys: [
            {
              columnNames: ["m"],
              referencedTableName: "to.m",
              referencedColumnNames: ["id"],
              onDelete: "CASCADE",
            },
          ],
        }),
      );
      await r.renameTable("to.k", "kk");
    }
    async down(r) {
      await r.dropTable("to.kk");
      await r.dropTable("to.m");
    }
  }
  source = make(true, { migrations: [M1], migrationsTableName: "migs" });
  await source.initialize();
  await source.runMigrations();
  await source.runMigrations({ transaction: "each" });
  assert.strictEqual(await source.showMigrations(), false);
  await source.undoLastMigration();
  await source.dropDatabase();
  await source.query('drop schema "to" cascade');
  await source.query("drop table if exists migs, public.migs");
  await source.destroy();
})();
