package clients;

import static clients.Servers.check;
import static clients.Servers.same;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import org.flywaydb.core.Flyway;
import org.flywaydb.core.api.FlywayException;
import org.flywaydb.database.postgresql.PostgreSQLConfigurationExtension;

/**
 * Flyway: migrates a schema of its own, again with nothing to do, with a repeatable migration, by two
 * that start at once on two instances, refuses a script that was changed, repairs, cleans, and takes up a schema that was there by `baseline`.
 */
final class FlywayClient {
    private static Path scripts;

    private FlywayClient() {}

    private static void script(String name, String text) throws Exception {
        Files.writeString(scripts.resolve(name), text);
    }

    private static Flyway flyway(String url) {
        var configuration = Flyway.configure();
        // Else what is built beside writers waits for the transaction that has the lock, as in PostgreSQL.
        configuration.getConfigurationExtension(PostgreSQLConfigurationExtension.class).setTransactionalLock(false);
        return configuration
            .dataSource(url, Servers.USER, null)
            .schemas("flyway_app")
            .locations("filesystem:" + scripts)
            .cleanDisabled(false)
            .load();
    }

    static void run() throws Exception {
        scripts = Files.createTempDirectory("flyway");
        try {
            Servers.run(Servers.URL, "drop schema if exists flyway_app cascade");
            migrate();
            changed();
            together();
            baseline();
        } finally {
            try (var files = Files.walk(scripts)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }

    private static void migrate() throws Exception {
        script("V1__people.sql", """
            create table person (id bigserial primary key, name varchar(80) not null unique, born date);
            create index person_born on person (born) where born is not null;
            comment on table person is 'who; knows';
            insert into person (name) values ('Ada;'), ('Böll');
            """);
        script("V1.1__orders.sql", """
            create type state as enum ('open', 'paid');
            create table orders (
                id uuid primary key default gen_random_uuid(),
                person bigint not null references person on delete cascade,
                state state not null default 'open',
                data jsonb not null default '{}'
            );
            create function stamp() returns trigger language plpgsql as $$
            begin
                new.data := new.data || jsonb_build_object('n', 1);
                return new;
            end;
            $$;
            create trigger stamp before insert on orders for each row execute function stamp();
            do $$ begin for i in 1..3 loop insert into orders (person) values (1); end loop; end $$;
            """);
        script("V2__concurrent_index.sql", "create index concurrently orders_person on orders (person);\n");
        script("R__view.sql", "create or replace view paid as select * from orders where state = 'paid';\n");
        Flyway flyway = flyway(Servers.URL);
        same(flyway.migrate().migrationsExecuted, 4, "flyway migrates");
        same(flyway(Servers.OTHER).migrate().migrationsExecuted, 0, "flyway again, on another instance");
        flyway.validate();
        same(flyway.info().applied().length, 5, "flyway info");
        same(Servers.rows(Servers.OTHER, "select count(*), min(data::text) from flyway_app.orders"),
            List.of("3 {\"n\": 1}"), "what flyway made");
    }

    private static void changed() throws Exception {
        script("R__view.sql", "create or replace view paid as select *, 1 as more from orders where state = 'paid';\n");
        same(flyway(Servers.URL).migrate().migrationsExecuted, 1, "flyway repeats");
        script("V1__people.sql", "create table person (id bigserial primary key);\n");
        try {
            flyway(Servers.URL).migrate();
            check(false, "flyway takes a changed script");
        } catch (FlywayException e) {
            check(e.getMessage().contains("checksum mismatch"), e.getMessage());
        }
        flyway(Servers.URL).repair();
        flyway(Servers.URL).validate();
        script("V3__bad.sql", "create table half (i int);\ncreate table half (i int);\n");
        try {
            flyway(Servers.URL).migrate();
            check(false, "flyway takes a bad script");
        } catch (FlywayException e) {
            check(e.getMessage().contains("42P07"), e.getMessage());
        }
        same(Servers.rows(Servers.OTHER, "select to_regclass('flyway_app.half') is null"), List.of("t"), "flyway takes back");
        Files.delete(scripts.resolve("V3__bad.sql"));
    }

    /** Two programs that start at once: one of them migrates, the other waits for it. */
    private static void together() throws Exception {
        script("V4__slow.sql", "create table slow as select g from generate_series(1, 50000) g;\n");
        var both = Executors.newFixedThreadPool(2);
        Callable<Integer> here = () -> flyway(Servers.URL).migrate().migrationsExecuted;
        Callable<Integer> there = () -> flyway(Servers.OTHER).migrate().migrationsExecuted;
        int executed = 0;
        for (var one : both.invokeAll(List.of(here, there))) {
            executed += one.get();
        }
        both.shutdown();
        same(executed, 1, "flyway on two instances");
    }

    private static void baseline() throws Exception {
        flyway(Servers.URL).clean();
        same(Servers.rows(Servers.OTHER, "select count(*) from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = 'flyway_app'"),
            List.of("0"), "flyway cleans");
        Servers.run(Servers.URL, "create schema if not exists flyway_app", "create table flyway_app.old (i int)");
        flyway(Servers.URL).baseline();
        check(flyway(Servers.URL).info().current().getVersion().toString().equals("1"), "flyway baseline");
        flyway(Servers.URL).clean();
    }
}
