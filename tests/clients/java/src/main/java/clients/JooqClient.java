package clients;

import static clients.Servers.check;
import static clients.Servers.same;
import static org.jooq.impl.DSL.arrayAgg;
import static org.jooq.impl.DSL.avg;
import static org.jooq.impl.DSL.constraint;
import static org.jooq.impl.DSL.count;
import static org.jooq.impl.DSL.excluded;
import static org.jooq.impl.DSL.exists;
import static org.jooq.impl.DSL.field;
import static org.jooq.impl.DSL.inline;
import static org.jooq.impl.DSL.jsonbArrayAgg;
import static org.jooq.impl.DSL.jsonbObject;
import static org.jooq.impl.DSL.key;
import static org.jooq.impl.DSL.lateral;
import static org.jooq.impl.DSL.listAgg;
import static org.jooq.impl.DSL.multiset;
import static org.jooq.impl.DSL.name;
import static org.jooq.impl.DSL.row;
import static org.jooq.impl.DSL.rowNumber;
import static org.jooq.impl.DSL.select;
import static org.jooq.impl.DSL.selectOne;
import static org.jooq.impl.DSL.sum;
import static org.jooq.impl.DSL.table;
import static org.jooq.impl.DSL.val;
import static org.jooq.impl.DSL.values;

import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.util.Comparator;
import java.util.List;
import org.jooq.DSLContext;
import org.jooq.Field;
import org.jooq.JSONB;
import org.jooq.Record;
import org.jooq.SQLDialect;
import org.jooq.Table;
import org.jooq.codegen.GenerationTool;
import org.jooq.exception.DataAccessException;
import org.jooq.exception.IntegrityConstraintViolationException;
import org.jooq.impl.DSL;
import org.jooq.impl.SQLDataType;
import org.jooq.meta.jaxb.Configuration;
import org.jooq.meta.jaxb.Database;
import org.jooq.meta.jaxb.Generate;
import org.jooq.meta.jaxb.Generator;
import org.jooq.meta.jaxb.Jdbc;
import org.jooq.meta.jaxb.Logging;
import org.jooq.meta.jaxb.Target;

/**
 * jOOQ: definitions by its language, classes generated from a schema, queries with MULTISET,
 * windows, recursion, MERGE, upserts, batches, lazy cursors, nested transactions.
 */
final class JooqClient {
    private static final Table<Record> AUTHOR = table(name("jooq_app", "author"));
    private static final Table<Record> BOOK = table(name("jooq_app", "book"));
    private static final Field<Integer> AUTHOR_ID = field(name("jooq_app", "author", "id"), SQLDataType.INTEGER);
    private static final Field<String> NAME = field(name("jooq_app", "author", "name"), SQLDataType.VARCHAR(40));
    private static final Field<LocalDate> BORN = field(name("jooq_app", "author", "born"), SQLDataType.LOCALDATE);
    private static final Field<String[]> TAGS = field(name("jooq_app", "author", "tags"), SQLDataType.VARCHAR.array());
    private static final Field<JSONB> DATA = field(name("jooq_app", "author", "data"), SQLDataType.JSONB);
    private static final Field<Integer> BOOK_ID = field(name("jooq_app", "book", "id"), SQLDataType.INTEGER);
    private static final Field<Integer> BOOK_AUTHOR = field(name("jooq_app", "book", "author_id"), SQLDataType.INTEGER);
    private static final Field<String> TITLE = field(name("jooq_app", "book", "title"), SQLDataType.VARCHAR);
    private static final Field<BigDecimal> PRICE = field(name("jooq_app", "book", "price"), SQLDataType.NUMERIC(8, 2));

    private JooqClient() {}

    static void run() throws Exception {
        Servers.run(Servers.URL, "drop schema if exists jooq_app cascade");
        try (var connection = Servers.connect(Servers.URL)) {
            DSLContext jooq = DSL.using(connection, SQLDialect.POSTGRES);
            definitions(jooq);
            generated();
            queries(jooq);
            changes(jooq);
            transactions(jooq);
            same(jooq.meta().getSchemas("jooq_app").size(), 1, "schemas");
            check(jooq.meta().getTables(name("jooq_app", "book")).get(0).getReferences().size() == 1, "references");
            jooq.dropSchema("jooq_app").cascade().execute();
        }
    }

    private static void definitions(DSLContext jooq) {
        jooq.createSchemaIfNotExists("jooq_app").execute();
        jooq.createTable(AUTHOR)
            .column("id", SQLDataType.INTEGER.identity(true))
            .column("name", SQLDataType.VARCHAR(40).nullable(false))
            .column("born", SQLDataType.LOCALDATE)
            .column("tags", SQLDataType.VARCHAR.array().defaultValue(new String[0]))
            .column("data", SQLDataType.JSONB)
            .constraints(constraint("author_pk").primaryKey("id"), constraint("author_name").unique("name"))
            .comment("who writes")
            .execute();
        jooq.createTable(BOOK)
            .column("id", SQLDataType.INTEGER.identity(true))
            .column("author_id", SQLDataType.INTEGER.nullable(false))
            .column("title", SQLDataType.VARCHAR(80).nullable(false))
            .column("price", SQLDataType.NUMERIC(8, 2).defaultValue(BigDecimal.ONE))
            .constraints(
                constraint("book_pk").primaryKey("id"),
                constraint("book_author").foreignKey(field(name("author_id"))).references(AUTHOR, field(name("id"))).onDeleteCascade(),
                constraint("book_price").check(field(name("price"), SQLDataType.NUMERIC).ge(BigDecimal.ZERO)))
            .execute();
        jooq.createIndex("book_title").on(BOOK, field(name("title")).desc(), field(name("id"))).execute();
        jooq.createUniqueIndex("book_free").on(BOOK, field(name("title"))).where(field(name("price")).eq(inline(0))).execute();
        jooq.createView(name("jooq_app", "dear"), name("id"), name("title")).as(select(BOOK_ID, TITLE).from(BOOK).where(PRICE.gt(BigDecimal.TEN))).execute();
        jooq.createSequence(name("jooq_app", "numbers")).startWith(10).incrementBy(5).execute();
        jooq.createType(name("jooq_app", "mood")).asEnum("sad", "ok").execute();
        jooq.createDomain(name("jooq_app", "positive")).as(SQLDataType.INTEGER).execute();
        jooq.execute("create type jooq_app.address as (street text, zip int)");
        jooq.execute("create function jooq_app.twice(x int) returns int language sql as 'select 2 * x'");
        jooq.execute("create function jooq_app.both(inout a int, out b text) language plpgsql as $$ begin b := a::text; end $$");
        jooq.execute("create function jooq_app.several(n int) returns table (i int, s text) language sql as 'select i, i::text from generate_series(1, n) i'");
        jooq.alterTable(BOOK).addColumn("pages", SQLDataType.INTEGER).execute();
        jooq.alterTable(BOOK).alterColumn("pages").set(SQLDataType.BIGINT).execute();
        jooq.alterTable(BOOK).renameColumn("pages").to("length").execute();
        jooq.alterTable(BOOK).dropColumn("length").execute();
        jooq.commentOnColumn(field(name("jooq_app", "book", "title"))).is("its title").execute();
    }

    /** Classes from what the catalogs say of the schema. */
    private static void generated() throws Exception {
        Path folder = Files.createTempDirectory("jooq");
        try {
            GenerationTool.generate(new Configuration()
                .withLogging(Logging.ERROR)
                .withJdbc(new Jdbc().withDriver("org.postgresql.Driver").withUrl(Servers.URL).withUser(Servers.USER))
                .withGenerator(new Generator()
                    .withDatabase(new Database().withName("org.jooq.meta.postgres.PostgresDatabase").withInputSchema("jooq_app"))
                    .withGenerate(new Generate().withDaos(true).withPojos(true).withComments(true))
                    .withTarget(new Target().withPackageName("made").withDirectory(folder.toString()))));
            try (var files = Files.walk(folder)) {
                var names = files.filter(Files::isRegularFile).map(f -> folder.resolve("made").relativize(f).toString()).sorted().toList();
                for (String wanted : List.of("Keys.java", "Indexes.java", "Sequences.java", "Domains.java", "enums/Mood.java",
                        "routines/Twice.java", "routines/Both.java", "tables/Author.java", "tables/Book.java", "tables/Dear.java",
                        "tables/Several.java", "udt/Address.java")) {
                    check(names.contains(wanted), wanted + " of " + names);
                }
            }
            String book = Files.readString(folder.resolve("made/tables/Book.java"));
            for (String wanted : List.of("NUMERIC(8, 2)", "identity(true)", "its title", "BOOK_PRICE", "book_price")) {
                check(book.toUpperCase().contains(wanted.toUpperCase()), wanted + " in " + book);
            }
            check(Files.readString(folder.resolve("made/Keys.java")).contains("BOOK__BOOK_AUTHOR"), "keys");
            check(Files.readString(folder.resolve("made/Indexes.java")).contains("BOOK_FREE"), "indexes");
        } finally {
            try (var files = Files.walk(folder)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }

    private static void queries(DSLContext jooq) {
        var ann = jooq.insertInto(AUTHOR, NAME, BORN, TAGS, DATA)
            .values("Ann", LocalDate.of(2000, 2, 29), new String[] {"a", "b,c"}, JSONB.valueOf("{\"x\": [1]}"))
            .values("Bob", null, new String[0], null)
            .returning(AUTHOR_ID, NAME, TAGS, DATA)
            .fetch();
        same(ann.get(0).get(TAGS)[1], "b,c", "tags");
        same(ann.get(0).get(DATA).data(), "{\"x\": [1]}", "jsonb");
        var books = jooq.insertInto(BOOK, BOOK_AUTHOR, TITLE, PRICE);
        for (int i = 0; i < 20; i++) {
            books = books.values(ann.get(i % 2).get(AUTHOR_ID), "Book " + i, BigDecimal.valueOf(i));
        }
        same(books.execute(), 20, "books");

        var nested = jooq
            .select(NAME, multiset(select(TITLE, PRICE).from(BOOK).where(BOOK_AUTHOR.eq(AUTHOR_ID)).orderBy(TITLE).limit(2)).as("books"))
            .from(AUTHOR).orderBy(NAME).fetch();
        same(nested.get(0).value2().get(1).value1(), "Book 10", "multiset");
        same(nested.get(1).value2().get(0).value2(), new BigDecimal("1.00"), "multiset's numbers");
        var groups = jooq.select(NAME, count(), sum(PRICE), avg(PRICE), listAgg(TITLE, ";").withinGroupOrderBy(PRICE.desc()),
                arrayAgg(BOOK_ID).orderBy(BOOK_ID).filterWhere(PRICE.gt(BigDecimal.TEN)), jsonbArrayAgg(jsonbObject(key("t").value(TITLE))))
            .from(AUTHOR).join(BOOK).on(BOOK_AUTHOR.eq(AUTHOR_ID)).groupBy(AUTHOR_ID, NAME).having(count().gt(1)).orderBy(NAME).fetch();
        same(groups.get(0).value2(), 10, "groups");
        check(groups.get(0).value5().startsWith("Book 18;Book 16"), "listagg");
        same(groups.get(0).value6().length, 4, "filter");
        var ranked = select(TITLE, PRICE, rowNumber().over().partitionBy(BOOK_AUTHOR).orderBy(PRICE.desc()).as("n")).from(BOOK).asTable("ranked");
        same(jooq.selectFrom(ranked).where(ranked.field("n", Integer.class).le(2)).orderBy(2).fetch(0, String.class),
            List.of("Book 16", "Book 17", "Book 18", "Book 19"), "windows");
        var numbers = name("numbers").fields("i").as(select(val(1)).unionAll(
            select(field(name("i"), Integer.class).plus(1)).from(table(name("numbers"))).where(field(name("i"), Integer.class).lt(10))));
        same(jooq.withRecursive(numbers).select(sum(field(name("i"), Integer.class))).from(numbers).fetchOne(0, int.class), 55, "recursion");
        var last = select(TITLE.as("title")).from(BOOK).where(BOOK_AUTHOR.eq(AUTHOR_ID)).orderBy(PRICE.desc()).limit(1).asTable("last");
        same(jooq.select(NAME, field(name("last", "title"))).from(AUTHOR).leftJoin(lateral(last)).on(DSL.noCondition()).orderBy(NAME).fetch(1, String.class),
            List.of("Book 18", "Book 19"), "lateral");
        same(jooq.fetchCount(select(TITLE).from(BOOK).where(row(TITLE, PRICE).in(row("Book 1", BigDecimal.ONE), row("Book 2", BigDecimal.ONE)))), 1, "rows");
        same(jooq.selectFrom(values(row(1, "a"), row(2, "b")).as("v", "i", "s")).where(exists(selectOne())).fetch(1, String.class), List.of("a", "b"), "values");
        same(jooq.select(TITLE).from(BOOK).where(TITLE.containsIgnoreCase("k 1")).orderBy(PRICE).seek(BigDecimal.valueOf(12)).limit(2).fetch(TITLE),
            List.of("Book 13", "Book 14"), "seek");
        same(jooq.select(NAME).from(AUTHOR).where(TAGS.contains(new String[] {"a"})).fetch(NAME), List.of("Ann"), "arrays");
        int read = 0;
        try (var rows = jooq.selectFrom(BOOK).fetchSize(3).fetchLazy()) {
            while (rows.hasNext()) {
                rows.fetchNext(4);
                read++;
            }
        }
        same(read, 5, "lazy");
    }

    private static void changes(DSLContext jooq) {
        for (String born : List.of("1999-01-01", "1998-01-01")) {
            jooq.insertInto(AUTHOR, NAME, BORN).values("Cid", LocalDate.parse(born)).onConflict(field(name("name"))).doUpdate()
                .set(field(name("born"), LocalDate.class), excluded(field(name("born"), LocalDate.class))).execute();
        }
        same(jooq.select(BORN).from(AUTHOR).where(NAME.eq("Cid")).fetchOne(BORN), LocalDate.of(1998, 1, 1), "upsert");
        same(jooq.insertInto(AUTHOR, NAME).values("Cid").onConflictDoNothing().execute(), 0, "nothing");
        var one = values(row(1, "Cid"), row(2, "Dan")).as("v", "i", "s");
        int merged = jooq.mergeInto(AUTHOR).using(one).on(NAME.eq(one.field("s", String.class)))
            .whenMatchedThenUpdate().set(field(name("tags"), String[].class), new String[] {"merged"})
            .whenNotMatchedThenInsert(field(name("name"), String.class)).values(one.field("s", String.class)).execute();
        same(merged, 2, "merge");
        same(jooq.update(BOOK).set(field(name("price"), BigDecimal.class), PRICE.plus(1)).from(AUTHOR)
            .where(BOOK_AUTHOR.eq(AUTHOR_ID)).and(NAME.eq("Ann")).returningResult(TITLE).fetch().size(), 10, "update from");
        int[] batch = jooq.batch(jooq.insertInto(AUTHOR, NAME).values((String) null)).bind("x").bind("y").bind("z").execute();
        same(batch.length, 3, "batch");
        same(jooq.deleteFrom(AUTHOR).where(NAME.in("x", "y", "z")).returning(NAME).fetch().size(), 3, "delete returning");
        same(jooq.nextval(DSL.sequence(name("jooq_app", "numbers"), SQLDataType.BIGINT)), 10L, "sequence");
        same(jooq.fetchValue("select i from jooq_app.several(3) order by i desc limit 1"), 3, "functions");
        try {
            jooq.insertInto(AUTHOR, NAME).values("Ann").execute();
            check(false, "unique");
        } catch (IntegrityConstraintViolationException error) {
            same(error.sqlState(), "23505", "unique");
        }
    }

    private static void transactions(DSLContext jooq) {
        jooq.transaction(outer -> {
            outer.dsl().deleteFrom(BOOK).where(TITLE.eq("Book 1")).execute();
            try {
                outer.dsl().transaction(inner -> {
                    inner.dsl().deleteFrom(BOOK).execute();
                    throw new DataAccessException("back");
                });
            } catch (DataAccessException back) {
                same(outer.dsl().fetchCount(BOOK), 19, "savepoint");
            }
        });
        same(jooq.selectFrom(BOOK).where(TITLE.eq("Book 2")).forUpdate().skipLocked().fetch().size(), 1, "locks");
        // Its own explain() reads costs, of which Braid's plans have none.
        check(jooq.fetch("explain {0}", jooq.selectFrom(BOOK)).format().contains("Scan"), "explain");
        jooq.truncate(BOOK).restartIdentity().cascade().execute();
        same(jooq.fetchCount(BOOK), 0, "truncate");
    }
}
