// Prisma: `db push` of models and of models that have changed, `migrate deploy`, `db pull`; the
// client over node-postgres: relations, filters, upserts, transactions, groups, raw queries.
const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs"),
  path = require("node:path");
const { Client } = require("pg");
process.chdir(__dirname);
const { PGHOST: host, PGPORT: port, PGUSER: user, PGDATABASE: database } = process.env;

// Runs a command of Prisma's with the models of a file; its answer is what it printed.
function command(models, ...words) {
  const env = { ...process.env, PRISMA_SCHEMA: models, PRISMA_HIDE_UPDATE_MESSAGE: "1", CHECKPOINT_DISABLE: "1" };
  const program = path.join(path.dirname(require.resolve("prisma/package.json")), "build/index.js");
  try {
    return execFileSync(process.execPath, [program, ...words], { env, encoding: "utf8", stdio: "pipe" });
  } catch (error) {
    throw new Error(`prisma ${words.join(" ")}: ${error.stdout}${error.stderr}`);
  }
}

// The models after some time: a value of an enum and a column more, one less, another type.
function changedModels() {
  const changed = fs
    .readFileSync("schema.prisma", "utf8")
    .replace("  ADMIN\n", "  ADMIN\n  GUEST\n")
    .replace("  picture   Bytes?\n", "  nick      String?   @unique\n")
    .replace("score    Float    @default(0)", "score    Decimal  @default(1) @db.Decimal(8, 3)");
  fs.writeFileSync("changed.prisma", changed);
}

async function schemas(plain) {
  await plain.query("drop schema if exists prisma_app cascade; create schema prisma_app");
  command("schema.prisma", "db", "push", "--skip-generate");
  assert.match(command("schema.prisma", "db", "push", "--skip-generate"), /already in sync/);
  changedModels();
  command("changed.prisma", "db", "push", "--skip-generate", "--accept-data-loss");
  assert.match(command("changed.prisma", "db", "push", "--skip-generate"), /already in sync/);
  const pulled = command("changed.prisma", "db", "pull", "--print");
  for (const wanted of ["enum Role", "GUEST", "@db.Decimal(8, 3)", "@@unique([authorId, title])", "Label[]"]) {
    assert.ok(pulled.includes(wanted), `${wanted} in ${pulled}`);
  }

  await plain.query("drop schema prisma_app cascade; create schema prisma_app");
  fs.rmSync("migrations", { recursive: true, force: true });
  const migration = (name, ...from) => {
    const script = command("changed.prisma", "migrate", "diff", ...from, "--script");
    fs.mkdirSync(`migrations/${name}`, { recursive: true });
    fs.writeFileSync(`migrations/${name}/migration.sql`, script);
  };
  fs.mkdirSync("migrations");
  fs.writeFileSync("migrations/migration_lock.toml", 'provider = "postgresql"\n');
  migration("1_first", "--from-empty", "--to-schema-datamodel", "schema.prisma");
  command("schema.prisma", "migrate", "deploy");
  migration("2_changed", "--from-schema-datamodel", "schema.prisma", "--to-schema-datamodel", "changed.prisma");
  command("changed.prisma", "migrate", "deploy");
  assert.match(command("changed.prisma", "migrate", "deploy"), /No pending migrations/);
  assert.match(command("changed.prisma", "migrate", "status"), /up to date/);
}

async function queries(prisma, Prisma) {
  const ann = await prisma.user.create({
    data: {
      email: "ann@x",
      name: "Ann",
      role: "ADMIN",
      tags: ["a", "b,c"],
      settings: { theme: { dark: true }, list: [1, "x"] },
      balance: new Prisma.Decimal("12.50"),
      visits: 9007199254740993n,
      born: new Date("2000-02-29"),
      profile: { create: { bio: "é€" } },
      posts: {
        create: [
          { title: "one", score: 1.5, labels: { create: [{ name: "new" }, { name: "old" }] } },
          { title: "two", score: 2.5, labels: { connectOrCreate: [{ where: { name: "new" }, create: { name: "new" } }] } },
        ],
      },
    },
    include: { profile: true, posts: { include: { labels: true }, orderBy: { title: "asc" } } },
  });
  assert.deepStrictEqual(ann.posts.map((post) => post.labels.length), [2, 1]);
  assert.strictEqual(ann.visits, 9007199254740993n);
  assert.strictEqual(String(ann.balance), "12.5");
  assert.match(ann.token, /^[0-9a-f-]{36}$/);
  const many = await prisma.user.createMany({
    data: Array.from({ length: 50 }, (_, i) => ({ email: `u${i}@x`, name: i % 2 ? null : `U${i}`, bossId: ann.id })),
    skipDuplicates: true,
  });
  assert.strictEqual(many.count, 50);
  const again = await prisma.user.createManyAndReturn({ data: [{ email: "v@x" }, { email: "w@x" }], select: { email: true } });
  assert.deepStrictEqual(again, [{ email: "v@x" }, { email: "w@x" }]);
  await assert.rejects(prisma.user.create({ data: { email: "ann@x" } }), { code: "P2002" });
  await assert.rejects(prisma.post.create({ data: { title: "x", authorId: -1 } }), { code: "P2003" });

  const found = await prisma.user.findMany({
    where: {
      OR: [{ name: { startsWith: "u1", mode: "insensitive" } }, { tags: { has: "b,c" } }, { settings: { path: ["theme", "dark"], equals: true } }],
      NOT: { email: { endsWith: "@y" } },
      createdAt: { lte: new Date(Date.now() + 60000) },
    },
    orderBy: [{ name: { sort: "desc", nulls: "last" } }, { id: "asc" }],
    take: 3,
    select: { name: true, _count: { select: { posts: true, team: true } } },
  });
  assert.deepStrictEqual(found, [
    { name: "U18", _count: { posts: 0, team: 0 } },
    { name: "U16", _count: { posts: 0, team: 0 } },
    { name: "U14", _count: { posts: 0, team: 0 } },
  ]);
  const withPosts = await prisma.user.findMany({
    where: { posts: { some: { labels: { some: { name: "old" } } }, every: { score: { gt: 1 } }, none: { title: "z" } } },
    include: { team: { take: 2, orderBy: { id: "asc" }, include: { boss: true } } },
  });
  assert.deepStrictEqual(withPosts.map((one) => one.team.map((two) => two.boss.email)), [["ann@x", "ann@x"]]);
  const page = await prisma.user.findMany({ cursor: { email: "u10@x" }, skip: 1, take: 2, orderBy: { id: "asc" } });
  assert.deepStrictEqual(page.map((one) => one.email), ["u11@x", "u12@x"]);
  assert.strictEqual((await prisma.user.findMany({ distinct: ["name"], where: { bossId: ann.id } })).length, 26);

  const upserted = { where: { email: "up@x" }, create: { email: "up@x" }, update: { visits: { increment: 2 } } };
  await prisma.user.upsert(upserted);
  assert.strictEqual((await prisma.user.upsert(upserted)).visits, 2n);
  await prisma.user.update({ where: { id: ann.id }, data: { tags: { push: "d" }, balance: { multiply: 2 }, posts: { updateMany: { where: {}, data: { score: { decrement: 1 } } } } } });
  const groups = await prisma.post.groupBy({ by: ["authorId"], _sum: { score: true }, _avg: { score: true }, _count: true, having: { score: { _max: { gt: 0 } } } });
  assert.deepStrictEqual([String(groups[0]._sum.score), groups[0]._count], ["2", 2]);
  const whole = await prisma.user.aggregate({ _max: { balance: true, visits: true }, _min: { born: true }, _count: { name: true } });
  assert.deepStrictEqual([String(whole._max.balance), whole._count.name], ["25", 26]);
  await prisma.vote.create({ data: { postId: ann.posts[0].id, voter: 7, up: true } });
  assert.ok((await prisma.vote.findUnique({ where: { postId_voter: { postId: ann.posts[0].id, voter: 7 } } })).up);
  await transactions(prisma, Prisma, ann);
}

async function transactions(prisma, Prisma, ann) {
  await assert.rejects(
    prisma.$transaction(async (tx) => {
      await tx.user.deleteMany({ where: { bossId: ann.id } });
      await tx.post.findFirstOrThrow({ where: { title: "nothing" } });
    }),
    { code: "P2025" },
  );
  const [moved, count] = await prisma.$transaction(
    [prisma.user.updateMany({ where: { bossId: ann.id }, data: { role: "GUEST" } }), prisma.user.count({ where: { role: "GUEST" } })],
    { isolationLevel: Prisma.TransactionIsolationLevel.RepeatableRead },
  );
  assert.deepStrictEqual([moved.count, count], [50, 50]);
  const name = "Ann";
  const raw = await prisma.$queryRaw`select id, tags, settings, balance, visits, born, "created_at" from users where name = ${name} and id = any(${[ann.id, -1]})`;
  assert.deepStrictEqual([raw[0].tags, raw[0].settings.list, String(raw[0].balance)], [["a", "b,c", "d"], [1, "x"], "25"]);
  assert.strictEqual(await prisma.$executeRaw`update users set name = ${"Anne"} where id = ${ann.id}`, 1);
  await assert.rejects(prisma.user.delete({ where: { id: ann.id } }), { code: "P2003" });
  await prisma.post.deleteMany();
  await prisma.user.delete({ where: { id: ann.id } });
  assert.strictEqual(await prisma.profile.count(), 0);
  assert.strictEqual(await prisma.user.count({ where: { bossId: null } }), 53);
}

(async () => {
  const plain = new Client({ host, port: Number(port), user, database });
  await plain.connect();
  await schemas(plain);
  command("changed.prisma", "generate");
  const { PrismaClient, Prisma } = require("./generated");
  const { PrismaPg } = require("@prisma/adapter-pg");
  const address = { host, port: Number(port), user, database, options: "-c search_path=prisma_app" };
  const prisma = new PrismaClient({ adapter: new PrismaPg(address, { schema: "prisma_app" }) });
  await queries(prisma, Prisma);
  await prisma.$disconnect();
  await plain.query("drop schema prisma_app cascade");
  await plain.end();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
