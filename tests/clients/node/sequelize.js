// Sequelize: sets its time zone as an interval on connecting, then asks; makes a
// table with an array for a model. Enums, and functions that it makes, wait for later versions.
const assert = require("node:assert");
const { Sequelize, DataTypes, Op } = require("sequelize");

(async () => {
  for (const timezone of ["+00:00", "-05:30"]) {
    const { PGHOST: host, PGPORT: port, PGUSER: user, PGDATABASE: database } = process.env;
    const sequelize = new Sequelize(database, user, "", { host, port, dialect: "postgres", timezone, logging: false });
    await sequelize.authenticate();
    const [rows] = await sequelize.query("select 42 as n");
    assert.deepStrictEqual(rows, [{ n: 42 }]);
    const [[{ zone }]] = await sequelize.query("select current_setting('timezone') as zone");
    assert.strictEqual(zone, timezone === "+00:00" ? "<+00>-00" : "<-05:30>+05:30");
    const tags = { type: DataTypes.ARRAY(DataTypes.TEXT), defaultValue: [] };
    const Note = sequelize.define("note", { body: { type: DataTypes.STRING, unique: true }, tags });
    await Note.sync({ force: true });
    await Note.create({ body: "é", tags: ["a", "b,c", ""] });
    await Note.upsert({ id: 1, body: "é", tags: ["d"] });
    const found = await Note.findAll({ where: { tags: { [Op.contains]: ["d"] } }, raw: true });
    assert.deepStrictEqual(found.map(({ id, body, tags }) => [id, body, tags]), [[1, "é", ["d"]]]);
    await Note.drop();
    await sequelize.close();
  }
})();
