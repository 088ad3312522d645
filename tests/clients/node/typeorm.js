// TypeORM: connects, which asks for the current schema as a table, then asks. Synchronizing a schema waits for later versions.
require("reflect-metadata");
const assert = require("node:assert");
const { DataSource } = require("typeorm");

(async () => {
  const { PGHOST: host, PGPORT: port, PGUSER: username, PGDATABASE: database } = process.env;
  const source = new DataSource({ type: "postgres", host, port: Number(port), username, database, installExtensions: false });
  await source.initialize();
  assert.deepStrictEqual(await source.query("select $1::int + 1 as n", [41]), [{ n: 42 }]);
  assert.deepStrictEqual(await source.query("SELECT * FROM current_schema()"), [{ current_schema: "public" }]);
  await source.destroy();
})();
