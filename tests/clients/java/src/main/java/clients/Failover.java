package clients;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;

/** A client of failover.py by pgjdbc: commits rows until its standard input ends. */
final class Failover extends Thread {
    private static final String NAME = System.getenv("FAILOVER_NAME");
    private static volatile boolean ended;

    private final int number;
    private int committed;
    private int doubtful;
    private long longest;
    private final TreeMap<String, Integer> errors = new TreeMap<>();

    private Failover(int number) {
        this.number = number;
    }

    /** Hosts in the order in which the driver tries them. */
    private static String url() {
        String[] hosts = System.getenv("FAILOVER_HOSTS").split(",");
        String[] ports = System.getenv("FAILOVER_PORTS").split(",");
        var pairs = new ArrayList<String>();
        for (int i = 0; i < hosts.length; i++) {
            pairs.add(hosts[i] + ":" + ports[i]);
        }
        return "jdbc:postgresql://" + String.join(",", pairs) + "/" + System.getenv("PGDATABASE") + "?sslmode=disable";
    }

    static void load() throws Exception {
        var workers = new ArrayList<Failover>();
        for (int i = 0; i < Integer.parseInt(System.getenv("FAILOVER_WORKERS")); i++) {
            workers.add(new Failover(i));
        }
        workers.forEach(Thread::start);
        System.in.readAllBytes();
        ended = true;
        var errors = new TreeMap<String, Integer>();
        List<Long> longest = new ArrayList<>();
        int committed = 0;
        int doubtful = 0;
        for (Failover worker : workers) {
            worker.join();
            committed += worker.committed;
            doubtful += worker.doubtful;
            longest.add(worker.longest / 1_000_000);
            worker.errors.forEach((kind, count) -> errors.merge(kind, count, Integer::sum));
        }
        var kinds = new ArrayList<String>();
        errors.forEach((kind, count) -> kinds.add("\"" + kind + "\": " + count));
        System.out.printf("{\"committed\": %d, \"doubtful\": %d, \"longest_ms\": %s, \"errors\": {%s}}%n",
            committed, doubtful, longest, String.join(", ", kinds));
    }

    /** Commits its rows one after another, each by one transaction, over one connection. */
    @Override
    public void run() {
        Connection connection = null;
        long last = 0;
        while (!ended) {
            try {
                if (connection == null) {
                    connection = DriverManager.getConnection(url(), Servers.USER, null);
                    connection.setAutoCommit(false);
                }
                commit(connection);
            } catch (SQLException error) {
                connection = after(connection, error);
                if (!"23505".equals(error.getSQLState())) {
                    errors.merge(String.valueOf(error.getSQLState()), 1, Integer::sum);
                    continue;
                }
                // The commit whose answer did not come.
                doubtful++;
            }
            long now = System.nanoTime();
            longest = Math.max(longest, last == 0 ? 0 : now - last);
            committed++;
            last = now;
        }
        after(connection, null);
    }

    private void commit(Connection connection) throws SQLException {
        try (var row = connection.prepareStatement("insert into failover_row values (?, ?, ?)");
                var account = connection.prepareStatement("update failover_account set n = n + 1 where id = ?")) {
            row.setString(1, NAME);
            row.setInt(2, number);
            row.setInt(3, committed);
            row.executeUpdate();
            account.setInt(1, (committed * 7 + number) % 100);
            account.executeUpdate();
            connection.commit();
        }
    }

    /** The connection without its transaction, or nothing if it is broken or the work is done. */
    private static Connection after(Connection connection, SQLException error) {
        if (connection == null) {
            return null;
        }
        try {
            if (error != null && !connection.isClosed()) {
                connection.rollback();
                return connection;
            }
            connection.close();
        } catch (SQLException broken) {
            // Of a connection that is gone: the caller makes another, and counts what it was told.
        }
        return null;
    }
}
