package clients;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/** Where the programs connect to, and small helpers that they share. */
final class Servers {
    static final String HOST = System.getenv("PGHOST");
    static final String USER = System.getenv("PGUSER");
    static final String URL = url(System.getenv("PGPORT"));
    /** Another instance of the same database, or the same one where there is no other. */
    static final String OTHER = url(System.getenv().getOrDefault("PGPORT2", System.getenv("PGPORT")));

    private Servers() {}

    private static String url(String port) {
        return "jdbc:postgresql://" + HOST + ":" + port + "/" + System.getenv("PGDATABASE");
    }

    static void check(boolean right, String what) {
        if (!right) {
            throw new AssertionError(what);
        }
    }

    static void same(Object found, Object wanted, String what) {
        check(java.util.Objects.equals(found, wanted), what + ": " + found + ", not " + wanted);
    }

    static Connection connect(String url) throws SQLException {
        return DriverManager.getConnection(url, USER, null);
    }

    /** Runs statements one by one. */
    static void run(String url, String... statements) throws SQLException {
        try (var connection = connect(url); var statement = connection.createStatement()) {
            for (String text : statements) {
                statement.execute(text);
            }
        }
    }

    /** The rows of a query, their columns with blanks between them. */
    static List<String> rows(String url, String query) throws SQLException {
        var found = new ArrayList<String>();
        try (var connection = connect(url);
                var statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(query)) {
            int columns = rows.getMetaData().getColumnCount();
            while (rows.next()) {
                var row = new StringBuilder();
                for (int i = 1; i <= columns; i++) {
                    row.append(i == 1 ? "" : " ").append(rows.getString(i));
                }
                found.add(row.toString());
            }
        }
        return found;
    }
}
