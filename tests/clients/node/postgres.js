// postgres.js: connects, which looks up the types of arrays; asks, and sends and reads arrays.
const assert = require("node:assert");
const postgres = require("postgres");

(async () => {
  const sql = postgres({ connect_timeout: 10 });
  const rows = await sql`select ${41}::int + 1 as n, ${"é€"}::text as t`;
  assert.deepStrictEqual([...rows], [{ n: 42, t: "é€" }]);
  const arrays = await sql`select ${[1, 2, 3]}::int[] as n, ${sql.array(["a", "é,"])}::text[] as t`;
  assert.deepStrictEqual([...arrays], [{ n: [1, 2, 3], t: ["a", "é,"] }]);
  const some = await sql`select g from generate_series(1, 5) g where g = any(${[2, 4, 9]}::int[])`;
  assert.deepStrictEqual([...some], [{ g: 2 }, { g: 4 }]);
  await sql.end();
})();
