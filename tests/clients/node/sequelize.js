// Sequelize: sets its time zone as an interval on connecting; tables of models with relations,
// enums, ranges and arrays, and their changes; reads, writes, findOrCreate, locks; what the query
// interface changes and reads of the catalogs.
const assert = require("node:assert");
const { Sequelize, DataTypes, Op } = require("sequelize");
const { PGHOST: host, PGPORT: port, PGUSER: user, PGDATABASE: database } = process.env;

async function zones() {
  for (const timezone of ["+00:00", "-05:30"]) {
    const sequelize = new Sequelize(database, user, "", {
      host,
      port,
      dialect: "postgres",
      timezone,
      logging: false,
    });
    await sequelize.authenticate();
    const [[{ zone }]] = await sequelize.query("select current_setting('timezone') as zone");
    assert.strictEqual(zone, timezone === "+00:00" ? "<+00>-00" : "<-05:30>+05:30");
    const tags = { type: DataTypes.ARRAY(DataTypes.TEXT), defaultValue: [] };
    const Note = sequelize.define("note", { body: { type: DataTypes.STRING, unique: true }, tags });
    await Note.sync({ force: true });
    await Note.create({ body: "é", tags: ["a", "b,c", ""] });
    await Note.upsert({ id: 1, body: "é", tags: ["d"] });
    const found = await Note.findAll({ where: { tags: { [Op.contains]: ["d"] } }, raw: true });
    assert.deepStrictEqual(
      found.map(({ id, body, tags }) => [id, body, tags]),
      [[1, "é", ["d"]]],
    );
    await Note.drop();
    await sequelize.close();
  }
}

function models(sequelize) {
  const options = { schema: "sq" };
  const User = sequelize.define(
    "user",
    {
      name: { type: DataTypes.STRING(40), allowNull: false, comment: "the name" },
      mood: DataTypes.ENUM("sad", "ok"),
      data: DataTypes.JSONB,
      range: DataTypes.RANGE(DataTypes.INTEGER),
      uid: { type: DataTypes.UUID, defaultValue: DataTypes.UUIDV4 },
      price: DataTypes.DECIMAL(10, 2),
      born: DataTypes.DATEONLY,
      blob: DataTypes.BLOB,
      tags: DataTypes.ARRAY(DataTypes.STRING),
    },
    {
      ...options,
      indexes: [
        { fields: ["name"], unique: true },
        { fields: [sequelize.fn("lower", sequelize.col("name"))], name: "user_lower" },
      ],
      version: true,
      paranoid: true,
    },
  );
  const Post = sequelize.define(
    "post",
    { title: DataTypes.TEXT, n: { type: DataTypes.INTEGER, defaultValue: 0 } },
    options,
  );
  const Tag = sequelize.define(
    "tag",
    { label: { type: DataTypes.STRING, primaryKey: true } },
    { ...options, timestamps: false },
  );
  User.hasMany(Post, { foreignKey: { allowNull: false }, onDelete: "CASCADE" });
  Post.belongsTo(User);
  Post.belongsToMany(Tag, { through: "post_tag" });
  Tag.belongsToMany(Post, { through: "post_tag" });
  return { User, Post, Tag };
}

async function rows(sequelize, { User, Post, Tag }) {
  const include = [{ model: Post, include: [Tag] }];
  const made = await User.create(
    {
      name: "a",
      mood: "ok",
      data: { a: [1] },
      range: [1, 5],
      price: "1.50",
      born: "2020-01-02",
      blob: Buffer.from([0, 255]),
      tags: ["x"],
      posts: [{ title: "p1" }, { title: "p2", tags: [{ label: "t" }] }],
    },
    { include },
  );
  const back = await User.findByPk(made.id, { include });
  assert.strictEqual(back.posts.length, 2);
  assert.deepStrictEqual(
    back.range.map((r) => r.value),
    [1, 5],
  );
  // By a function with an exception handler and the row as a parameter that goes out.
  const [b, first] = await User.findOrCreate({ where: { name: "b" }, defaults: { mood: "sad" } });
  const [again, second] = await User.findOrCreate({ where: { name: "b" } });
  assert.deepStrictEqual([first, second, again.id], [true, false, b.id]);
  await User.findCreateFind({ where: { name: "c" } });
  assert.strictEqual((await User.findAll({ where: { data: { [Op.contains]: { a: [1] } } } })).length, 1);
  assert.strictEqual(await User.count({ include: [{ model: Post, required: true }], distinct: true }), 1);
  assert.strictEqual(
    (
      await User.findAndCountAll({
        include: [Post],
        limit: 1,
        order: [
          ["name", "DESC"],
          [Post, "title", "ASC"],
        ],
      })
    ).count,
    4,
  );
  const groups = await Post.findAll({
    attributes: ["userId", [sequelize.fn("count", sequelize.col("*")), "n"]],
    group: ["userId"],
    having: sequelize.literal("count(*) > 1"),
    raw: true,
  });
  assert.strictEqual(groups[0].n, "2");
  await Post.increment("n", { by: 3, where: { title: "p1" } });
  assert.strictEqual(await Post.max("n"), 3);
  await User.update({ mood: "sad" }, { where: { name: { [Op.iLike]: "A%" } }, returning: true });
  await User.bulkCreate([{ name: "a", mood: "ok" }, { name: "z" }], {
    updateOnDuplicate: ["mood"],
    conflictAttributes: ["name"],
    returning: true,
  });
  const post = await Post.findOne({ include: { model: User, where: { mood: "ok" } } });
  await post.addTags(await Tag.findAll());
  await post.setTags([]);
  const isolationLevel = Sequelize.Transaction.ISOLATION_LEVELS.REPEATABLE_READ;
  await sequelize.transaction({ isolationLevel }, async (transaction) => {
    const user = await User.findOne({
      where: { name: "a" },
      lock: transaction.LOCK.UPDATE,
      skipLocked: true,
      transaction,
    });
    await user.destroy({ transaction });
    await sequelize.transaction({ transaction }, async (inner) => user.restore({ transaction: inner }));
  });
}

async function changes(sequelize) {
  const posts = { tableName: "posts", schema: "sq" };
  const catalog = sequelize.getQueryInterface();
  await catalog.addColumn(posts, "extra", { type: DataTypes.ENUM("a", "b"), defaultValue: "a" });
  await catalog.addIndex(posts, ["title"], { concurrently: true, where: { n: 0 } });
  await catalog.addConstraint(posts, {
    fields: ["n"],
    type: "check",
    name: "n_positive",
    where: { n: { [Op.gte]: 0 } },
  });
  assert.deepStrictEqual(
    (await catalog.showIndex(posts)).map((i) => i.name),
    ["posts_pkey", "posts_title"],
  );
  const keys = await catalog.getForeignKeyReferencesForTable(posts);
  assert.deepStrictEqual(
    keys.map((k) => [k.columnName, k.referencedTableName, k.referencedColumnName]),
    [["userId", "users", "id"]],
  );
  await catalog.removeConstraint(posts, "n_positive");
  await catalog.renameColumn(posts, "extra", "further");
  await catalog.changeColumn(posts, "title", { type: DataTypes.STRING(80), allowNull: false });
  const { further, title } = await catalog.describeTable(posts);
  assert.deepStrictEqual([further.special.sort(), further.defaultValue], [["a", "b"], "a"]);
  assert.deepStrictEqual([title.type, title.allowNull], ["CHARACTER VARYING(80)", false]);
  await catalog.removeColumn(posts, "further");
  await catalog.createFunction(
    "sq.twice",
    [{ type: "integer", name: "a" }],
    "integer",
    "plpgsql",
    "RETURN a * 2;",
  );
  assert.deepStrictEqual((await sequelize.query("select sq.twice(4)"))[0], [{ twice: 8 }]);
  await catalog.dropFunction("sq.twice", [{ type: "integer", name: "a" }]);
}

(async () => {
  await zones();
  const sequelize = new Sequelize(database, user, "", { host, port, dialect: "postgres", logging: false });
  await sequelize.query("drop schema if exists sq cascade");
  await sequelize.createSchema("sq");
  const all = models(sequelize);
  await sequelize.sync({ force: true });
  await sequelize.sync();
  await rows(sequelize, all);
  await changes(sequelize);
  await sequelize.sync({ alter: true });
  await sequelize.drop();
  await sequelize.dropSchema("sq");
  await sequelize.close();
})();
