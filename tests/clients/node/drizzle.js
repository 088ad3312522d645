// Drizzle: its migrator begins with a schema that is there already; then a query. Migrations in a schema of their own wait for later versions.
const assert = require("node:assert");
const { drizzle } = require("drizzle-orm/node-postgres");
const { sql } = require("drizzle-orm");
const { Pool } = require("pg");

(async () => {
  const pool = new Pool();
  const db = drizzle({ client: pool });
  await db.execute(sql`CREATE SCHEMA IF NOT EXISTS ${sql.identifier("public")}`);
  const { rows } = await db.execute(sql`select ${41}::int + 1 as n`);
  assert.deepStrictEqual(rows, [{ n: 42 }]);
  await pool.end();
})();
