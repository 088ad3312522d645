// postgres.js: connects, asks. The arrays that it looks up on connecting wait for later versions.
const assert = require("node:assert");
const postgres = require("postgres");

(async () => {
  const sql = postgres({ fetch_types: false, connect_timeout: 10 });
  const rows = await sql`select ${41}::int + 1 as n, ${"é€"}::text as t`;
  assert.deepStrictEqual([...rows], [{ n: 42, t: "é€" }]);
  await sql.end();
})();
