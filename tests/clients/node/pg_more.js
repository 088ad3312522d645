// node-postgres further: COPY streams, cursors, query streams, notifications, errors.
const assert = require("node:assert");
const { Client, Pool } = require("pg");
const Cursor = require("pg-cursor"),
  QueryStream = require("pg-query-stream"),
  { from, to, both } = require("pg-copy-streams");
const createSubscriber = require("pg-listen");
const { pipeline } = require("node:stream/promises"),
  { Readable } = require("node:stream");
// Runs a step, whose answer is PostgreSQL's.
const step = async (name, wanted, run) => assert.deepStrictEqual(JSON.stringify(await run()), wanted, name);
(async () => {
  const pool = new Pool(),
    c = await pool.connect();
  await c.query(
    "drop table if exists pgmore; create table pgmore (id int primary key, t text, at timestamptz)",
  );
  await step("copy from", '[{"n":2000,"m":1999}]', async () => {
    await pipeline(
      Readable.from(Array.from({ length: 2000 }, (_, i) => `${i}\tt${i}\t2020-01-01 00:00:00+00\n`)),
      c.query(from("copy pgmore from stdin")),
    );
    return (await c.query("select count(*)::int n, max(id) m from pgmore")).rows;
  });
  await step("copy csv to", '"id,t\\n0,t0\\n1,t1\\n2,t2\\n"', async () => {
    let text = "";
    for await (const b of c.query(
      to("copy (select id, t from pgmore where id < 3 order by id) to stdout (format csv, header)"),
    ))
      text += b;
    return text;
  });
  await step("copy binary to", "60911", async () => {
    let n = 0;
    for await (const b of c.query(to("copy pgmore to stdout (format binary)"))) n += b.length;
    return n;
  });
  await step("copy error", undefined, async () => {
    await assert.rejects(pipeline(Readable.from(["1\tx\t\\N\n"]), c.query(from("copy pgmore from stdin"))), {
      code: "23505",
    });
  });
  await step("cursor", '[10,15,[{"x":1}]]', async () => {
    const k = c.query(new Cursor("select * from pgmore where id >= $1 order by id", [5]));
    const a = await k.read(10),
      b = await k.read(10);
    await k.close();
    return [a.length, b[0].id, (await c.query("select 1 as x")).rows];
  });
  await step("stream", "2000", async () => {
    let n = 0;
    for await (const r of c.query(new QueryStream("select * from pgmore", [], { batchSize: 77 }))) n++;
    return n;
  });
  await step("named", "[[1,2]]", async () => {
    for (let i = 0; i < 3; i++) await c.query({ name: "q", text: "select $1::int + 1 as n", values: [i] });
    return (await c.query({ text: "select 1, 2", rowMode: "array" })).rows;
  });
  await step("multi", '[[{"a":1}],[{"b":2}]]', async () =>
    (await c.query("select 1 as a; select 2 as b")).map((r) => r.rows),
  );
  await step(
    "types",
    '[{"a":"1","b":"1.5","c":[1,2],"d":{"a":1},"e":{"days":1,"hours":2,"minutes":3,"seconds":4},"f":{"type":"Buffer","data":[255,0]},"g":"a","h":[["a","b"],["c","d"]]}]',
    async () =>
      (
        await c.query(
          "select 1::int8 a, 1.5::numeric b, '{1,2}'::int[] c, '{\"a\":1}'::json d, '1 day 02:03:04'::interval e, '\\xff00'::bytea f, 'a'::\"char\" g, '{{a,b},{c,d}}'::text[] h ",
        )
      ).rows,
  );
  await step(
    "errors",
    '["23505","Key (id)=(1) already exists.","public","pgmore","pgmore_pkey","ERROR"]',
    async () => {
      const e = await c.query("insert into pgmore values (1)").catch((e) => e);
      return [e.code, e.detail, e.schema, e.table, e.constraint, e.severity];
    },
  );
  await step("listen", '{"a":1}', async () => {
    const s = createSubscriber({});
    const got = new Promise((r) => s.notifications.on("news", r));
    await s.connect();
    await s.listenTo("news");
    await c.query("begin");
    await c.query("select pg_notify('news', $1)", [JSON.stringify({ a: 1 })]);
    await c.query("commit");
    const g = await got;
    await s.notify("news", { b: 2 });
    await s.unlistenAll();
    await s.close();
    return g;
  });
  await step("timeout", '"57014"', async () => {
    const t = new Client({
      statement_timeout: 100,
      lock_timeout: 50,
      idle_in_transaction_session_timeout: 1000,
      application_name: "x",
      options: "-c search_path=pg_catalog",
    });
    await t.connect();
    const e = await t.query("select pg_sleep(5)").catch((e) => e);
    await t.end();
    return e.code;
  });
  await c.query("drop table pgmore");
  c.release();
  await pool.end();
})();
