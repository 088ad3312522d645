// node-postgres: connects with startup options, asks.
const assert = require("node:assert");
const { Client } = require("pg");

(async () => {
  const client = new Client({ options: "-c geqo=off -c statement_timeout=5s", client_encoding: "utf-8" });
  await client.connect();
  const { rows } = await client.query("select $1::int + 1 as n, current_setting('geqo') as geqo", [41]);
  assert.deepStrictEqual(rows, [{ n: 42, geqo: "off" }]);
  const schema = await client.query("select * from current_schema()");
  assert.deepStrictEqual(schema.rows, [{ current_schema: "public" }]);
  await client.end();
})();
