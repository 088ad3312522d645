// The schema engine in JavaScript: its statements go through the same driver as the client's.
import { PrismaPg } from "@prisma/adapter-pg";
import pg from "pg";
import { defineConfig } from "prisma/config";

const { PGHOST, PGPORT, PGUSER, PGDATABASE, PRISMA_SCHEMA } = process.env;

// The driver's adapter refuses the types that catalogs have, `name` and `"char"`, of which the
// engine reads: it is told that these columns are text.
const AS_TEXT: Record<number, number> = { 18: 25, 19: 25, 1002: 1009, 1003: 1009 };
type Answer = { fields?: { dataTypeID: number }[] } | undefined;
const query = pg.Client.prototype.query as (...given: unknown[]) => unknown;
(pg.Client.prototype as { query: unknown }).query = function (...given: unknown[]) {
  const then = given.at(-1);
  if (typeof then === "function") {
    given[given.length - 1] = (error: unknown, answer: Answer) => {
      for (const field of answer?.fields ?? []) field.dataTypeID = AS_TEXT[field.dataTypeID] ?? field.dataTypeID;
      then(error, answer);
    };
  }
  return query.apply(this, given);
};

export default defineConfig({
  experimental: { adapter: true },
  engine: "js",
  schema: PRISMA_SCHEMA,
  migrations: { path: "migrations" },
  async adapter() {
    const address = { host: PGHOST, port: Number(PGPORT), user: PGUSER, database: PGDATABASE };
    // A command does not end its connections, and would wait for each to have been idle for long.
    const pool = { options: "-c search_path=prisma_app", allowExitOnIdle: true };
    return new PrismaPg({ ...address, ...pool }, { schema: "prisma_app" });
  },
});
