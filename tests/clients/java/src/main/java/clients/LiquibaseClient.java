package clients;

import static clients.Servers.same;
import static clients.Servers.check;

import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import liquibase.Contexts;
import liquibase.LabelExpression;
import liquibase.Liquibase;
import liquibase.Scope;
import liquibase.changelog.FastCheckService;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import liquibase.diff.compare.CompareControl;
import liquibase.diff.output.DiffOutputControl;
import liquibase.diff.output.changelog.DiffToChangeLog;
import liquibase.exception.LiquibaseException;
import liquibase.resource.DirectoryResourceAccessor;

/**
 * Liquibase: changes written in XML and SQL, again with nothing to do, by two that start at once on
 * two instances, taken back, refused when their checksum is another, and generated from a schema that
 * is there.
 */
final class LiquibaseClient {
    private static Path folder;

    private LiquibaseClient() {}

    private interface Work {
        void with(Liquibase liquibase) throws Exception;
    }

    private static void liquibase(String url, Work work) throws Exception {
        liquibase(url, "changes.xml", work);
    }

    private static void liquibase(String url, String file, Work work) throws Exception {
        // A program that starts remembers nothing of what another has found.
        Scope.getCurrentScope().getSingleton(FastCheckService.class).clearCache();
        try (var connection = Servers.connect(url)) {
            var database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
            database.setDefaultSchemaName("liquibase_app");
            database.setLiquibaseSchemaName("liquibase_app");
            try (var liquibase = new Liquibase(file, new DirectoryResourceAccessor(folder), database)) {
                work.with(liquibase);
            }
        }
    }

    private static void update(String url) throws Exception {
        liquibase(url, liquibase -> liquibase.update(new Contexts(), new LabelExpression()));
    }

    private static void changes(String more) throws Exception {
        Files.writeString(folder.resolve("changes.xml"), """
            <?xml version="1.0" encoding="UTF-8"?>
            <databaseChangeLog xmlns="http://www.liquibase.org/xml/ns/dbchangelog"
                xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
                xsi:schemaLocation="http://www.liquibase.org/xml/ns/dbchangelog http://www.liquibase.org/xml/ns/dbchangelog/dbchangelog-latest.xsd">
              <changeSet id="1" author="a">
                <createSequence sequenceName="numbers" startValue="100" incrementBy="5"/>
                <createTable tableName="person" remarks="who">
                  <column name="id" type="bigint" autoIncrement="true"><constraints primaryKey="true"/></column>
                  <column name="name" type="varchar(80)"><constraints nullable="false" unique="true" uniqueConstraintName="person_name"/></column>
                  <column name="born" type="date" remarks="when"/>
                  <column name="made" type="timestamp" defaultValueComputed="current_timestamp"/>
                  <column name="rich" type="boolean" defaultValueBoolean="false"/>
                  <column name="money" type="decimal(12,2)" defaultValueNumeric="1.5"/>
                  <column name="note" type="clob"/>
                  <column name="image" type="blob"/>
                </createTable>
                <createIndex tableName="person" indexName="person_born"><column name="born" descending="true"/></createIndex>
              </changeSet>
              <changeSet id="2" author="a">
                <createTable tableName="thing">
                  <column name="id" type="uuid" defaultValueComputed="gen_random_uuid()"><constraints primaryKey="true"/></column>
                  <column name="person" type="bigint"/>
                </createTable>
                <addForeignKeyConstraint constraintName="thing_person" baseTableName="thing" baseColumnNames="person"
                    referencedTableName="person" referencedColumnNames="id" onDelete="CASCADE" deferrable="true" initiallyDeferred="true"/>
                <insert tableName="person"><column name="name" value="Ada"/><column name="born" valueDate="1815-12-10"/></insert>
                <insert tableName="person"><column name="name" value="Bo"/></insert>
                <createView viewName="rich_people">select id, name from person where rich</createView>
              </changeSet>
              <changeSet id="3" author="b">
                <preConditions onFail="MARK_RAN"><not><columnExists tableName="person" columnName="mail"/></not></preConditions>
                <addColumn tableName="person"><column name="mail" type="varchar(40)" value="none"/></addColumn>
                <addNotNullConstraint tableName="person" columnName="mail" defaultNullValue="none"/>
                <modifyDataType tableName="person" columnName="mail" newDataType="varchar(200)"/>
                <renameColumn tableName="person" oldColumnName="note" newColumnName="remark"/>
                <addUniqueConstraint tableName="person" columnNames="name, mail" constraintName="person_mail"/>
                <dropIndex tableName="person" indexName="person_born"/>
                <createProcedure procedureName="touch">create procedure liquibase_app.touch(n int) language plpgsql as $$ begin update liquibase_app.person set money = n; end $$;</createProcedure>
              </changeSet>
              <changeSet id="4" author="b" runOnChange="true">
                <preConditions onFail="HALT"><tableExists tableName="person"/><foreignKeyConstraintExists foreignKeyTableName="thing" foreignKeyName="thing_person"/>
                  <indexExists indexName="person_mail"/><primaryKeyExists tableName="thing"/><sequenceExists sequenceName="numbers"/><viewExists viewName="rich_people"/>
                  <sqlCheck expectedResult="2">select count(*) from person</sqlCheck></preConditions>
                <update tableName="person"><column name="rich" valueBoolean="true"/><where>name = 'Ada'</where></update>
              </changeSet>
            """ + more + "</databaseChangeLog>\n");
    }

    static void run() throws Exception {
        folder = Files.createTempDirectory("liquibase");
        try {
            Servers.run(Servers.URL, "drop schema if exists liquibase_app cascade", "create schema liquibase_app");
            together();
            back();
            generate();
            liquibase(Servers.URL, Liquibase::dropAll);
            same(Servers.rows(Servers.OTHER, "select count(*) from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = 'liquibase_app'"),
                List.of("0"), "liquibase drops");
            Servers.run(Servers.URL, "drop schema liquibase_app cascade");
        } finally {
            try (var files = Files.walk(folder)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }

    /** Two programs that start at once: one of them has the lock and makes all, the other waits for it. */
    private static void together() throws Exception {
        changes("");
        liquibase(Servers.URL, liquibase -> check(!liquibase.listUnrunChangeSets(new Contexts(), new LabelExpression()).isEmpty(), "unrun"));
        var both = Executors.newFixedThreadPool(2);
        Callable<Void> here = () -> { update(Servers.URL); return null; };
        Callable<Void> there = () -> { update(Servers.OTHER); return null; };
        for (var one : both.invokeAll(List.of(here, there))) {
            one.get();
        }
        both.shutdown();
        same(Servers.rows(Servers.OTHER, "select id, exectype from liquibase_app.databasechangelog order by orderexecuted"),
            List.of("1 EXECUTED", "2 EXECUTED", "3 EXECUTED", "4 EXECUTED"), "liquibase");
        same(Servers.rows(Servers.OTHER, "select name, mail, rich, money from liquibase_app.person order by id"),
            List.of("Ada none t 1.50", "Bo none f 1.50"), "what liquibase made");
        update(Servers.OTHER);
    }

    private static void back() throws Exception {
        changes("""
            <changeSet id="5" author="c"><createTable tableName="later"><column name="i" type="int"/></createTable>
            <addColumn tableName="person"><column name="later" type="int"/></addColumn></changeSet>
            """);
        liquibase(Servers.URL, liquibase -> liquibase.tag("before"));
        liquibase(Servers.URL, liquibase -> {
            var script = new StringWriter();
            liquibase.update(new Contexts(), script);
            check(script.toString().contains("CREATE TABLE liquibase_app.later"), script.toString());
        });
        update(Servers.URL);
        liquibase(Servers.OTHER, liquibase -> liquibase.rollback("before", new Contexts(), new LabelExpression()));
        same(Servers.rows(Servers.URL, "select to_regclass('liquibase_app.later') is null"), List.of("t"), "liquibase takes back");
        changes("");
        String text = Files.readString(folder.resolve("changes.xml"));
        Files.writeString(folder.resolve("changes.xml"), text.replace("startValue=\"100\"", "startValue=\"200\""));
        try {
            update(Servers.URL);
            check(false, "liquibase takes a changed change");
        } catch (LiquibaseException e) {
            check(e.getMessage().contains("was: "), e.getMessage());
        }
        Files.writeString(folder.resolve("changes.xml"), text);
    }

    /** Writes down the schema that is there. */
    private static void generate() throws Exception {
        Path file = folder.resolve("generated.xml");
        liquibase(Servers.URL, file.toString(), liquibase -> {
            var database = liquibase.getDatabase();
            liquibase.generateChangeLog(database.getDefaultSchema(), new DiffToChangeLog(new DiffOutputControl(false, false, true, null)), System.out);
            String text = Files.readString(file);
            for (String part : new String[] {"<createTable remarks=\"who\" tableName=\"person\">", "addForeignKeyConstraint", "onDelete=\"CASCADE\"", "createView", "createSequence", "addUniqueConstraint"}) {
                check(text.contains(part), part + " in " + text);
            }
        });
    }
}
