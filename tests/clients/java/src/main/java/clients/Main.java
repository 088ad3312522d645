package clients;

import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Types;
import java.util.Properties;
import org.hibernate.cfg.Configuration;

/**
 * pgjdbc and Hibernate: each connects and asks. What Liquibase and Flyway send first is sent through
 * pgjdbc: their own tables need information_schema views of later versions.
 */
public final class Main {
    private static final String URL =
        "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");

    public static void main(String[] args) throws Exception {
        jdbc();
        hibernate();
    }

    private static void check(boolean right, String what) {
        if (!right) {
            throw new AssertionError(what);
        }
    }

    private static void jdbc() throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("options", "-c geqo=off -c application_name=with\\ blank");
        try (Connection connection = DriverManager.getConnection(URL, properties)) {
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
                // Flyway.
                ResultSet user = statement.executeQuery("SELECT CURRENT_USER");
                check(user.next(), "user");
                statement.execute("SET ROLE '" + user.getString(1) + "'");
            }
        }
    }

    private static void hibernate() {
        var factory = new Configuration()
            .setProperty("hibernate.connection.url", URL)
            .setProperty("hibernate.connection.username", System.getenv("PGUSER"))
            .buildSessionFactory();
        try (var session = factory.openSession()) {
            Object n = session.createNativeQuery("select 42", Integer.class).getSingleResult();
            check(n.equals(42), "hibernate");
        }
        factory.close();
    }
}
