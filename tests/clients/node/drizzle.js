// Drizzle: migrations of its kit, again, and further; queries, relations, transactions.
const assert = require("node:assert");
const fs = require("node:fs"),
  os = require("node:os"),
  path = require("node:path");
const { drizzle } = require("drizzle-orm/node-postgres");
const { migrate } = require("drizzle-orm/node-postgres/migrator");
const {
  pgSchema,
  serial,
  text,
  integer,
  jsonb,
  timestamp,
  uuid,
  numeric,
  index,
  uniqueIndex,
  primaryKey,
} = require("drizzle-orm/pg-core");
const { sql, eq, relations, count, desc, inArray } = require("drizzle-orm");
const { Pool } = require("pg");
(async () => {
  const pool = new Pool();
  await pool.query("drop schema if exists dz cascade; drop schema if exists drizzle cascade");
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "dz"));
  fs.mkdirSync(dir + "/meta");
  const entries = [];
  const add = (tag, when, text) => {
    entries.push({ idx: entries.length, version: "7", when, tag, breakpoints: true });
    fs.writeFileSync(`${dir}/${tag}.sql`, text);
    fs.writeFileSync(
      dir + "/meta/_journal.json",
      JSON.stringify({ version: "7", dialect: "postgresql", entries }),
    );
  };
  add(
    "0000_a",
    1000,
    `CREATE SCHEMA "dz";\n--> statement-breakpoint\nCREATE TYPE "dz"."mood" AS ENUM('sad', 'ok');--> statement-breakpoint\nCREATE TABLE "dz"."users" ("id" serial PRIMARY KEY NOT NULL, "uid" uuid DEFAULT gen_random_uuid() NOT NULL, "name" text NOT NULL, "mood" "dz"."mood" DEFAULT 'ok' NOT NULL, "data" jsonb DEFAULT '{}'::jsonb, "tags" text[] DEFAULT '{}' NOT NULL, "price" numeric(10, 2), "made" timestamp (3) with time zone DEFAULT now() NOT NULL, CONSTRAINT "users_name_unique" UNIQUE("name"), CONSTRAINT "users_price" CHECK ("dz"."users"."price" > 0));\n--> statement-breakpoint\nCREATE TABLE "dz"."posts" ("id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "dz"."posts_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1), "owner" integer, "title" text);\n--> statement-breakpoint\nALTER TABLE "dz"."posts" ADD CONSTRAINT "posts_owner_users_id_fk" FOREIGN KEY ("owner") REFERENCES "dz"."users"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint\nCREATE INDEX "users_data" ON "dz"."users" USING btree ("name" DESC NULLS LAST,"mood");`,
  );
  const db = drizzle({ client: pool });
  await migrate(db, { migrationsFolder: dir });
  await migrate(db, { migrationsFolder: dir });
  add(
    "0001_b",
    2000,
    `ALTER TYPE "dz"."mood" ADD VALUE 'new' BEFORE 'ok';--> statement-breakpoint\nALTER TABLE "dz"."users" ADD COLUMN "age" integer DEFAULT 7;--> statement-breakpoint\nALTER TABLE "dz"."users" ALTER COLUMN "name" SET DATA TYPE varchar(80);--> statement-breakpoint\nALTER TABLE "dz"."posts" RENAME TO "articles";--> statement-breakpoint\nALTER TABLE "dz"."articles" RENAME COLUMN "title" TO "head";--> statement-breakpoint\nCREATE VIEW "dz"."names" AS (select "name" from "dz"."users");--> statement-breakpoint\nCREATE UNIQUE INDEX "users_lower" ON "dz"."users" USING btree (lower("name"));`,
  );
  await migrate(db, { migrationsFolder: dir });
  const dz = pgSchema("dz"),
    mood = dz.enum("mood", ["sad", "new", "ok"]);
  const users = dz.table("users", {
    id: serial().primaryKey(),
    uid: uuid().defaultRandom(),
    name: text().notNull(),
    mood: mood().default("ok"),
    data: jsonb(),
    tags: text().array(),
    price: numeric({ precision: 10, scale: 2 }),
    made: timestamp({ precision: 3, withTimezone: true }).defaultNow(),
    age: integer(),
  });
  const articles = dz.table("articles", {
    id: integer().primaryKey().generatedAlwaysAsIdentity(),
    owner: integer().references(() => users.id),
    head: text(),
  });
  const schema = {
    users,
    articles,
    ur: relations(users, ({ many }) => ({ articles: many(articles) })),
    ar: relations(articles, ({ one }) => ({
      user: one(users, { fields: [articles.owner], references: [users.id] }),
    })),
  };
  const d = drizzle({ client: pool, schema });
  const [u] = await d
    .insert(users)
    .values({ name: "a", mood: "new", data: { k: [1] }, tags: ["x", "y,z"], price: "1.50" })
    .returning();
  assert.deepStrictEqual([u.tags, u.data, u.price, u.mood], [["x", "y,z"], { k: [1] }, "1.50", "new"]);
  await d.insert(articles).values([
    { owner: u.id, head: "h1" },
    { owner: u.id, head: "h2" },
  ]);
  await d
    .insert(users)
    .values({ name: "a" })
    .onConflictDoUpdate({ target: users.name, set: { age: sql`${users.age} + 1` } });
  const all = await d.query.users.findMany({
    with: { articles: { orderBy: desc(articles.id), limit: 1 } },
    where: eq(users.name, "a"),
  });
  assert.strictEqual(all[0].articles[0].head, "h2");
  const g = await d
    .select({ name: users.name, n: count() })
    .from(users)
    .leftJoin(articles, eq(articles.owner, users.id))
    .groupBy(users.name);
  assert.deepStrictEqual(g, [{ name: "a", n: 2 }]);
  const c = d.$with("c").as(
    d
      .select()
      .from(articles)
      .where(inArray(articles.id, [1, 2])),
  );
  assert.strictEqual((await d.with(c).select().from(c)).length, 2);
  await assert.rejects(
    d.transaction(
      async (t) => {
        await t.update(users).set({ age: 1 });
        await t
          .transaction(async (s) => {
            await s.delete(articles);
            s.rollback();
          })
          .catch(() => {});
        throw new Error("back");
      },
      { isolationLevel: "repeatable read", accessMode: "read write" },
    ),
    /back/,
  );
  const p = d
    .select()
    .from(users)
    .where(eq(users.id, sql.placeholder("id")))
    .for("update", { skipLocked: true })
    .prepare("pp");
  assert.strictEqual((await p.execute({ id: u.id }))[0].age, 8);
  assert.strictEqual(
    (await pool.query("select count(*)::int n from drizzle.__drizzle_migrations")).rows[0].n,
    2,
  );
  await pool.query("drop schema dz cascade; drop schema drizzle cascade");
  await pool.end();
})();
