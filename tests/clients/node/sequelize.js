// Sequelize: sets its time zone as an interval on connecting, then asks. Enums and arrays wait for later versions.
const assert = require("node:assert");
const { Sequelize } = require("sequelize");

(async () => {
  for (const timezone of ["+00:00", "-05:30"]) {
    const { PGHOST: host, PGPORT: port, PGUSER: user, PGDATABASE: database } = process.env;
    const sequelize = new Sequelize(database, user, "", { host, port, dialect: "postgres", timezone, logging: false });
    await sequelize.authenticate();
    const [rows] = await sequelize.query("select 42 as n");
    assert.deepStrictEqual(rows, [{ n: 42 }]);
    const [[{ zone }]] = await sequelize.query("select current_setting('timezone') as zone");
    assert.strictEqual(zone, timezone === "+00:00" ? "<+00>-00" : "<-05:30>+05:30");
    await sequelize.close();
  }
})();
