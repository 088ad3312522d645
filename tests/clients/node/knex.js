// Knex: migrations up, down, and by two at once; the schema builder; queries, json, transactions.
const assert = require("node:assert");
const fs = require("node:fs"),
  os = require("node:os"),
  path = require("node:path");
// Runs a step, whose answer is PostgreSQL's.
const step = async (name, wanted, run) => assert.deepStrictEqual(JSON.stringify(await run()), wanted, name);
(async () => {
  const { PGHOST: host, PGPORT: port, PGUSER: user, PGDATABASE: database } = process.env;
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "kx"));
  fs.writeFileSync(
    dir + "/1_a.js",
    `exports.up = async (k) => { await k.schema.withSchema("kx").createTable("users", (t) => { t.increments(); t.string("name", 40).notNullable().unique().comment("the name"); t.enu("mood", ["sad", "ok"], { useNative: true, enumName: "kx_mood" }); t.enum("kind", ["a", "b"]).defaultTo("a"); t.jsonb("data").defaultTo("{}"); t.specificType("tags", "text[]"); t.decimal("price", 10, 2); t.uuid("uid").defaultTo(k.raw("gen_random_uuid()")); t.binary("blob"); t.timestamps(true, true); t.index(["name", "mood"], "users_nm"); t.check("?? > 0", ["price"], "price_positive"); t.comment("users"); }); await k.schema.withSchema("kx").createTable("posts", (t) => { t.bigIncrements("id"); t.integer("user_id").unsigned().references("id").inTable("kx.users").onDelete("CASCADE").deferrable("deferred"); t.text("title"); t.geometry && 0; t.primary; }); }; exports.down = async (k) => { await k.schema.withSchema("kx").dropTable("posts"); await k.schema.withSchema("kx").dropTable("users"); await k.raw('drop type kx.kx_mood'); };`,
  );
  fs.writeFileSync(
    dir + "/2_b.js",
    `exports.up = async (k) => { await k.schema.withSchema("kx").alterTable("users", (t) => { t.string("email").nullable(); t.string("name", 80).notNullable().alter(); t.renameColumn("price", "cost"); t.dropColumn("blob"); t.unique(["email"], { indexName: "users_email", deferrable: "deferred" }); t.index(k.raw("lower(name)"), "users_lower"); t.setNullable("kind"); t.dropNullable("kind"); }); await k.schema.withSchema("kx").alterTable("users", (t) => { t.bigInteger("cost").alter({ alterNullable: false }); }); await k.schema.withSchema("kx").renameTable("posts", "articles"); await k.schema.withSchema("kx").createView("names", (v) => { v.columns(["name"]); v.as(k("kx.users").select("name")); }); await k.schema.withSchema("kx").createMaterializedView("mnames", (v) => { v.columns(["name"]); v.as(k("kx.users").select("name")); }); await k.schema.refreshMaterializedView("kx.mnames"); }; exports.down = async (k) => { await k.schema.withSchema("kx").dropMaterializedView("mnames"); await k.schema.withSchema("kx").dropView("names"); await k.schema.withSchema("kx").renameTable("articles", "posts"); await k.schema.withSchema("kx").alterTable("users", (t) => { t.dropUnique(["email"], "users_email"); t.dropColumn("email"); t.renameColumn("cost", "price"); t.binary("blob"); t.dropIndex([], "users_lower"); }); await k.schema.withSchema("kx").alterTable("users", (t) => { t.decimal("price", 10, 2).alter(); }); }; exports.config = { transaction: true };`,
  );
  const k = require("knex")({
    client: "pg",
    connection: { host, port: Number(port), user, database },
    migrations: { directory: dir, schemaName: "kx", tableName: "migs" },
    pool: { min: 0, max: 4 },
  });
  await step("schema", undefined, async () => {
    await k.raw("drop schema if exists kx cascade; drop type if exists kx_mood; create schema kx");
  });
  await step("latest", '["1_a.js","2_b.js"]', async () =>
    (await k.migrate.latest())[1].map((p) => path.basename(p)),
  );
  await step("status", "0", async () => k.migrate.status());
  await step("rollback", '["2_b.js","1_a.js"]', async () =>
    (await k.migrate.rollback())[1].map((p) => path.basename(p)),
  );
  await step("up", "2", async () => {
    await k.migrate.up();
    await k.migrate.up();
    return (await k.migrate.list())[0].length;
  });
  await step("down", undefined, async () => {
    await k.migrate.down();
    await k.migrate.latest();
  });
  await step("two", '"2"', async () => {
    await k.migrate.rollback(null, true);
    await Promise.allSettled([k.migrate.latest(), k.migrate.latest()]);
    return k.migrate.currentVersion();
  });
  const users = () => k("kx.users");
  await step("write", '{"id":1,"tags":["q"],"data":{"x":[1]}}', async () => {
    const [r] = await users()
      .insert([
        { name: "a", mood: "ok", data: { x: [1] }, tags: ["q"] },
        { name: "b", mood: "sad" },
      ])
      .returning(["id", "tags", "data"]);
    await k("kx.articles").insert({ user_id: r.id, title: "t" });
    await users().insert({ name: "a", mood: "sad" }).onConflict("name").merge(["mood"]);
    await users().insert({ name: "b" }).onConflict("name").ignore();
    return r;
  });
  await step("read", '[{"name":"a","n":1},{"name":"b","n":0}]', async () =>
    users()
      .as("u")
      .leftJoin("kx.articles as p", "p.user_id", "kx.users.id")
      .select("name", k.raw("count(p.id)::int as n"))
      .groupBy("name")
      .havingRaw("count(*) > 0")
      .orderBy("name")
      .with("w", (q) => q.select(k.raw("1"))),
  );
  await step("json", '[{"one":1,"name":"a"}]', async () =>
    users()
      .whereJsonSupersetOf("data", { x: [1] })
      .jsonExtract("data", "$.x[0]", "one")
      .select("name"),
  );
  await step("json2", '[{"count":"1"}]', async () => users().whereJsonPath("data", "$.x[0]", "=", 1).count());
  await step("json3", '[{"d":{"y":5}},{"d":{"y":5}}]', async () => {
    await users().update({ data: k.jsonSet("data", "$.y", JSON.stringify(5)) });
    return users()
      .select(k.jsonRemove("data", "$.x", "d"))
      .orderBy("name");
  });
  await step("tx", '["a","b"]', async () =>
    k.transaction(
      async (t) => {
        await t("kx.users").forUpdate().skipLocked().where({ name: "a" });
        await t
          .transaction(async (s) => {
            await s("kx.users").update({ name: "z" }).where({ name: "a" });
            throw new Error("back");
          })
          .catch(() => {});
        return t("kx.users").pluck("name").orderBy("name");
      },
      { isolationLevel: "repeatable read" },
    ),
  );
  await step("info", "[{},true,true]", async () => [
    await users().columnInfo(),
    await k.schema.withSchema("kx").hasTable("users"),
    await k.schema.withSchema("kx").hasColumn("users", "email"),
  ]);
  await step("stream", "2", async () => {
    let n = 0;
    for await (const r of users().stream()) n++;
    return n;
  });
  await step("batch", '[{"count":"502"}]', async () => {
    await k.batchInsert(
      "kx.users",
      Array.from({ length: 500 }, (_, i) => ({ name: "n" + i })),
      100,
    );
    return users().count();
  });
  await step("timeout", undefined, async () => {
    await assert.rejects(
      k.raw("select pg_sleep(10)").timeout(200, { cancel: true }),
      /timed out|Timeout|timeout/,
    );
  });
  await step("end", undefined, async () => {
    await k.migrate.rollback(null, true);
    await k.raw("drop schema kx cascade");
  });
  await k.destroy();
})();
