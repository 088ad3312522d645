package clients;

import static clients.Servers.check;
import static clients.Servers.same;

import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.Properties;
import java.util.TreeSet;

/** pgjdbc: statements and metadata. Hibernate: its mapping. Flyway and Liquibase: their migrations. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "jdbc" -> jdbc();
            case "hibernate" -> HibernateClient.run();
            case "flyway" -> FlywayClient.run();
            case "liquibase" -> LiquibaseClient.run();
            case "jooq" -> JooqClient.run();
            case "spring" -> SpringClient.run();
            case "failover" -> Failover.load();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void jdbc() throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("options", "-c geqo=off -c application_name=with\\ blank");
        try (Connection connection = DriverManager.getConnection(Servers.URL, properties)) {
            try (var statement = connection.prepareStatement("select ?::int + 1, current_setting('geqo')")) {
                statement.setInt(1, 41);
                ResultSet rows = statement.executeQuery();
                check(rows.next() && rows.getInt(1) == 42 && rows.getString(2).equals("off"), "jdbc");
            }
            try (CallableStatement call = connection.prepareCall("{? = call current_schema()}")) {
                call.registerOutParameter(1, Types.VARCHAR);
                call.execute();
                check(call.getString(1).equals("public"), "call");
            }
            try (var statement = connection.createStatement()) {
                // Hibernate, Liquibase and DBeaver.
                ResultSet words = statement.executeQuery("select string_agg(word, ',') from pg_catalog.pg_get_keywords()");
                check(words.next() && words.getString(1).contains("select"), "keywords");
                metadata(connection, statement);
                changes(connection);
                cursor(connection, statement);
            }
        }
    }

    /** The first column of each row of what a catalog says, in order. */
    private static String column(ResultSet rows, String name) throws SQLException {
        var found = new TreeSet<String>();
        while (rows.next()) {
            found.add(rows.getString(name));
        }
        return String.join(",", found);
    }

    private static void metadata(Connection connection, Statement statement) throws SQLException {
        statement.execute("drop schema if exists jdbc_app cascade");
        statement.execute("create schema jdbc_app");
        statement.execute("create type jdbc_app.mood as enum ('sad', 'ok')");
        statement.execute("create table jdbc_app.parent (id bigserial primary key, name text unique, mood jdbc_app.mood)");
        statement.execute("create table jdbc_app.child (id int, parent bigint references jdbc_app.parent on delete cascade, primary key (id, parent))");
        statement.execute("create index child_parent on jdbc_app.child (parent desc) where id > 0");
        statement.execute("create function jdbc_app.f(a int, out b text) language sql as $$ select 'x' $$");
        statement.execute("create procedure jdbc_app.p(a int) language plpgsql as $$ begin end $$");
        var catalog = connection.getMetaData();
        same(column(catalog.getPrimaryKeys(null, "jdbc_app", "child"), "COLUMN_NAME"), "id,parent", "getPrimaryKeys");
        same(column(catalog.getIndexInfo(null, "jdbc_app", "child", false, false), "INDEX_NAME"), "child_parent,child_pkey", "getIndexInfo");
        same(column(catalog.getImportedKeys(null, "jdbc_app", "child"), "PKTABLE_NAME"), "parent", "getImportedKeys");
        same(column(catalog.getExportedKeys(null, "jdbc_app", "parent"), "FKCOLUMN_NAME"), "parent", "getExportedKeys");
        same(column(catalog.getProcedures(null, "jdbc_app", "%"), "PROCEDURE_NAME"), "p", "getProcedures");
        same(column(catalog.getFunctions(null, "jdbc_app", "%"), "FUNCTION_NAME"), "f", "getFunctions");
        same(column(catalog.getFunctionColumns(null, "jdbc_app", "%", "%"), "COLUMN_NAME"), "a,b,returnValue", "getFunctionColumns");
        same(column(catalog.getTablePrivileges(null, "jdbc_app", "child"), "PRIVILEGE"),
            "DELETE,INSERT,REFERENCES,SELECT,TRIGGER,TRUNCATE,UPDATE", "getTablePrivileges");
        same(column(catalog.getColumns(null, "jdbc_app", "parent", "%"), "TYPE_NAME"), "\"jdbc_app\".\"mood\",bigserial,text", "getColumns");
        same(column(catalog.getBestRowIdentifier(null, "jdbc_app", "child", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME"),
            "id,parent", "getBestRowIdentifier");
    }

    /** A result set through which rows are changed. */
    private static void changes(Connection connection) throws SQLException {
        try (var statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE)) {
            statement.execute("insert into jdbc_app.parent (name) values ('a'), ('b')");
            ResultSet rows = statement.executeQuery("select id, name from jdbc_app.parent order by id");
            rows.next();
            rows.updateString("name", "c");
            rows.updateRow();
            rows.next();
            rows.deleteRow();
            rows.moveToInsertRow();
            rows.updateLong("id", 9);
            rows.updateString("name", "d");
            rows.insertRow();
        }
        same(Servers.rows(Servers.OTHER, "select id, name from jdbc_app.parent order by id").toString(), "[1 c, 9 d]", "updatable result set");
    }

    /** A function that gives a cursor; `?` is a parameter of type void, which is no argument. */
    private static void cursor(Connection connection, Statement statement) throws SQLException {
        statement.execute("""
            create function jdbc_app.numbers() returns refcursor language plpgsql as
            $$ declare r refcursor; begin open r for select 1 as n union all select 2; return r; end $$
            """);
        connection.setAutoCommit(false);
        try (CallableStatement call = connection.prepareCall("{? = call jdbc_app.numbers()}")) {
            call.registerOutParameter(1, Types.OTHER);
            call.execute();
            int sum = 0;
            for (var rows = (ResultSet) call.getObject(1); rows.next();) {
                sum += rows.getInt("n");
            }
            same(sum, 3, "refcursor");
        }
        connection.commit();
        connection.setAutoCommit(true);
        statement.execute("drop schema jdbc_app cascade");
    }
}
