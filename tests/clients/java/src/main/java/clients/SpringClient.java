package clients;

import static clients.Servers.check;
import static clients.Servers.same;

import com.zaxxer.hikari.HikariDataSource;
import jakarta.persistence.CascadeType;
import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.LockModeType;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.Table;
import jakarta.persistence.Version;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.IntStream;
import javax.sql.DataSource;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.dao.DataIntegrityViolationException;
import org.springframework.dao.OptimisticLockingFailureException;
import org.springframework.dao.QueryTimeoutException;
import org.springframework.data.domain.Example;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.domain.Sort;
import org.springframework.data.jdbc.repository.config.AbstractJdbcConfiguration;
import org.springframework.data.jdbc.repository.config.EnableJdbcRepositories;
import org.springframework.data.jpa.domain.Specification;
import org.springframework.data.jpa.repository.EntityGraph;
import org.springframework.data.jpa.repository.JpaRepository;
import org.springframework.data.jpa.repository.JpaSpecificationExecutor;
import org.springframework.data.jpa.repository.Lock;
import org.springframework.data.jpa.repository.Modifying;
import org.springframework.data.jpa.repository.Query;
import org.springframework.data.jpa.repository.config.EnableJpaRepositories;
import org.springframework.data.relational.core.mapping.MappedCollection;
import org.springframework.data.repository.CrudRepository;
import org.springframework.data.repository.PagingAndSortingRepository;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.core.namedparam.NamedParameterJdbcOperations;
import org.springframework.jdbc.core.namedparam.NamedParameterJdbcTemplate;
import org.springframework.jdbc.core.simple.SimpleJdbcCall;
import org.springframework.jdbc.core.simple.SimpleJdbcInsert;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.orm.jpa.JpaTransactionManager;
import org.springframework.orm.jpa.LocalContainerEntityManagerFactoryBean;
import org.springframework.orm.jpa.vendor.HibernateJpaVendorAdapter;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * Spring Data JPA and Spring Data JDBC, JdbcTemplate: repositories with derived and written queries,
 * pages, specifications, examples, locks, versions, aggregates; inserts and calls by metadata.
 */
final class SpringClient {
    private SpringClient() {}

    @Entity(name = "Writer")
    @Table(name = "writer", schema = "spring_app")
    public static class Writer {
        @jakarta.persistence.Id
        @GeneratedValue(strategy = GenerationType.IDENTITY)
        Long id;
        @Version
        int version;
        @Column(nullable = false, unique = true, length = 60)
        String name;
        int age;
        Instant seen = Instant.EPOCH;
        @OneToMany(mappedBy = "writer", cascade = CascadeType.ALL, orphanRemoval = true)
        List<Text> texts = new ArrayList<>();
    }

    @Entity(name = "Text")
    @Table(name = "text", schema = "spring_app")
    public static class Text {
        @jakarta.persistence.Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE)
        Long id;
        String title;
        BigDecimal price;
        @ManyToOne(optional = false)
        Writer writer;
    }

    record Total(String name, long texts, BigDecimal price) {}

    interface NameOnly {
        String getName();
    }

    interface Writers extends JpaRepository<Writer, Long>, JpaSpecificationExecutor<Writer> {
        Optional<Writer> findByName(String name);

        List<NameOnly> findTop3ByAgeGreaterThanEqualAndNameContainingIgnoreCaseOrderByAgeDescNameAsc(int age, String part);

        boolean existsByAgeBetween(int from, int to);

        long deleteByAgeIn(Set<Integer> ages);

        @EntityGraph(attributePaths = "texts")
        List<Writer> findDistinctByTextsTitleStartingWith(String start);

        @Lock(LockModeType.PESSIMISTIC_WRITE)
        Optional<Writer> findWithLockById(long id);

        @Query("select new clients.SpringClient$Total(w.name, count(t), sum(t.price)) from Writer w left join w.texts t group by w.name having count(t) > :least order by w.name")
        List<Total> totals(long least);

        @Query(value = "select name from spring_app.writer where name ~ :pattern order by age limit 2", nativeQuery = true)
        List<String> named(String pattern);

        @Modifying(clearAutomatically = true)
        @Query("update Writer w set w.age = w.age + 1 where w.age < :limit")
        int older(int limit);
    }

    @org.springframework.data.relational.core.mapping.Table(schema = "spring_app", name = "basket")
    static class Basket {
        @org.springframework.data.annotation.Id
        Long id;
        String owner;
        @org.springframework.data.annotation.Version
        int version;
        @MappedCollection(idColumn = "basket", keyColumn = "place")
        List<Item> items = new ArrayList<>();
        @MappedCollection(idColumn = "basket")
        Set<Mark> marks = new HashSet<>();
    }

    @org.springframework.data.relational.core.mapping.Table(schema = "spring_app", name = "item")
    record Item(String what, BigDecimal price) {}

    @org.springframework.data.relational.core.mapping.Table(schema = "spring_app", name = "mark")
    record Mark(String text) {}

    interface Baskets extends CrudRepository<Basket, Long>, PagingAndSortingRepository<Basket, Long> {
        List<Basket> findByOwnerLikeOrderByIdDesc(String owner);

        @org.springframework.data.jdbc.repository.query.Query("select sum(price) from spring_app.item where basket in (:ids)")
        BigDecimal worth(List<Long> ids);

        @org.springframework.data.relational.repository.Lock(org.springframework.data.relational.core.sql.LockMode.PESSIMISTIC_WRITE)
        List<Basket> findByOwner(String owner);
    }

    @Configuration
    @EnableJpaRepositories(considerNestedRepositories = true, basePackageClasses = SpringClient.class, entityManagerFactoryRef = "factory", transactionManagerRef = "jpa",
        includeFilters = @org.springframework.context.annotation.ComponentScan.Filter(type = org.springframework.context.annotation.FilterType.ASSIGNABLE_TYPE, classes = Writers.class), excludeFilters = @org.springframework.context.annotation.ComponentScan.Filter(type = org.springframework.context.annotation.FilterType.ASSIGNABLE_TYPE, classes = Baskets.class))
    @EnableJdbcRepositories(considerNestedRepositories = true, basePackageClasses = SpringClient.class, transactionManagerRef = "transactionManager",
        excludeFilters = @org.springframework.context.annotation.ComponentScan.Filter(type = org.springframework.context.annotation.FilterType.ASSIGNABLE_TYPE, classes = Writers.class))
    static class Beans extends AbstractJdbcConfiguration {
        @Bean(destroyMethod = "close")
        HikariDataSource dataSource() {
            var source = new HikariDataSource();
            source.setJdbcUrl(Servers.URL);
            source.setUsername(Servers.USER);
            source.setMaximumPoolSize(4);
            return source;
        }

        @Bean
        LocalContainerEntityManagerFactoryBean factory(DataSource source) {
            var factory = new LocalContainerEntityManagerFactoryBean();
            factory.setDataSource(source);
            factory.setPackagesToScan("clients.none");
            factory.setJpaVendorAdapter(new HibernateJpaVendorAdapter());
            factory.setPersistenceUnitPostProcessors(unit -> {
                unit.addManagedClassName(Writer.class.getName());
                unit.addManagedClassName(Text.class.getName());
            });
            factory.getJpaPropertyMap().put("hibernate.hbm2ddl.auto", "create");
            factory.getJpaPropertyMap().put("hibernate.jdbc.batch_size", "20");
            return factory;
        }

        @Bean
        PlatformTransactionManager jpa(EntityManagerFactory factory) {
            return new JpaTransactionManager(factory);
        }

        @Bean
        PlatformTransactionManager transactionManager(DataSource source) {
            return new DataSourceTransactionManager(source);
        }

        @Bean
        NamedParameterJdbcOperations operations(DataSource source) {
            return new NamedParameterJdbcTemplate(source);
        }
    }

    static void run() throws Exception {
        Servers.run(Servers.URL,
            "drop schema if exists spring_app cascade",
            "create schema spring_app",
            "create table spring_app.basket (id bigint generated by default as identity primary key, owner varchar(40), version int)",
            "create table spring_app.item (basket bigint references spring_app.basket, place int, what text, price numeric(8, 2), primary key (basket, place))",
            "create table spring_app.mark (basket bigint references spring_app.basket, text text)",
            "create function spring_app.halves(x int, out half int, out rest int) language plpgsql as 'begin half := x / 2; rest := x % 2; end'");
        try (var context = new AnnotationConfigApplicationContext(Beans.class)) {
            jpa(context.getBean(Writers.class), new TransactionTemplate(context.getBean("jpa", PlatformTransactionManager.class)));
            jdbc(context.getBean(Baskets.class), new TransactionTemplate(context.getBean("transactionManager", PlatformTransactionManager.class)));
            templates(context.getBean(DataSource.class));
        }
        Servers.run(Servers.URL, "drop schema spring_app cascade");
    }

    private static Writer writer(String name, int age, int texts) {
        var writer = new Writer();
        writer.name = name;
        writer.age = age;
        for (int i = 0; i < texts; i++) {
            var text = new Text();
            text.title = name + " " + i;
            text.price = new BigDecimal(i + ".50");
            text.writer = writer;
            writer.texts.add(text);
        }
        return writer;
    }

    private static void jpa(Writers writers, TransactionTemplate transaction) {
        var ann = writers.save(writer("Ann", 30, 3));
        writers.saveAll(IntStream.range(0, 30).mapToObj(i -> writer("w" + i, i, i % 3)).toList());
        same(writers.findByName("Ann").orElseThrow().id, ann.id, "derived");
        same(writers.findTop3ByAgeGreaterThanEqualAndNameContainingIgnoreCaseOrderByAgeDescNameAsc(10, "W2").stream().map(NameOnly::getName).toList(),
            List.of("w29", "w28", "w27"), "projection");
        check(writers.existsByAgeBetween(5, 6) && !writers.existsByAgeBetween(50, 60), "exists");
        same(writers.findDistinctByTextsTitleStartingWith("Ann").get(0).texts.size(), 3, "graph");
        same(writers.totals(2), List.of(new Total("Ann", 3, new BigDecimal("4.50"))), "records");
        same(writers.named("^w[12]$"), List.of("w1", "w2"), "native");
        var page = writers.findAll(PageRequest.of(1, 7, Sort.by(Sort.Order.desc("age"), Sort.Order.asc("name"))));
        same(page.getTotalElements() + " " + page.getContent().get(0).name, "31 w23", "page");
        Specification<Writer> young = (root, query, build) -> build.lessThan(root.get("age"), 3);
        same(writers.count(young.and((root, query, build) -> build.isNotEmpty(root.get("texts")))), 2L, "specification");
        var example = new Writer();
        example.name = "w7";
        example.age = 7;
        example.seen = Instant.EPOCH;
        same(writers.findAll(Example.of(example)).size(), 1, "example");
        same(transaction.execute(status -> writers.older(3)), 3, "bulk");
        same(transaction.execute(status -> writers.deleteByAgeIn(Set.of(20, 21))), 2L, "deletes");
        transaction.executeWithoutResult(status -> writers.findWithLockById(ann.id).orElseThrow().age = 31);
        ann.age = 99;
        fails(OptimisticLockingFailureException.class, () -> writers.save(ann));
        fails(DataIntegrityViolationException.class, () -> writers.saveAndFlush(writer("Ann", 1, 0)));
        writers.deleteAll();
        same(writers.count(), 0L, "deleted");
    }

    private static void jdbc(Baskets baskets, TransactionTemplate transaction) {
        var basket = new Basket();
        basket.owner = "ann";
        basket.items.add(new Item("pen", new BigDecimal("1.25")));
        basket.items.add(new Item("ink", new BigDecimal("2.50")));
        basket.marks.add(new Mark("new"));
        var saved = baskets.save(basket);
        saved.items.remove(0);
        saved.items.add(new Item("paper", BigDecimal.TEN));
        baskets.save(saved);
        var found = baskets.findById(saved.id).orElseThrow();
        same(found.items.stream().map(Item::what).toList(), List.of("ink", "paper"), "aggregate");
        same(baskets.worth(List.of(saved.id, -1L)), new BigDecimal("12.50"), "worth");
        same(baskets.findByOwnerLikeOrderByIdDesc("a%").get(0).marks.size(), 1, "marks");
        same(transaction.execute(status -> baskets.findByOwner("ann").size()), 1, "lock");
        same(baskets.findAll(PageRequest.of(0, 5, Sort.by("owner"))).getTotalElements(), 1L, "page");
        var stale = baskets.findById(saved.id).orElseThrow();
        baskets.save(found);
        fails(OptimisticLockingFailureException.class, () -> baskets.save(stale));
        baskets.deleteAll();
        same(baskets.count(), 0L, "deleted");
    }

    private static void templates(DataSource source) {
        var template = new JdbcTemplate(source);
        var insert = new SimpleJdbcInsert(template).withSchemaName("spring_app").withTableName("basket").usingColumns("owner", "version").usingGeneratedKeyColumns("id");
        Number id = insert.executeAndReturnKey(java.util.Map.of("owner", "bob", "version", 0));
        int[][] batch = template.batchUpdate("insert into spring_app.item values (?, ?, ?, ?)", IntStream.range(0, 25).boxed().toList(), 10, (row, i) -> {
            row.setLong(1, id.longValue());
            row.setInt(2, i);
            row.setString(3, "item " + i);
            row.setBigDecimal(4, BigDecimal.valueOf(i));
        });
        same(batch.length, 3, "batch");
        same(template.queryForObject("select count(*) from spring_app.item where what like ?", Integer.class, "item 1%"), 11, "template");
        var halves = new SimpleJdbcCall(template).withSchemaName("spring_app").withProcedureName("halves").execute(java.util.Map.of("x", 7));
        same(halves.get("half") + " " + halves.get("rest"), "3 1", "call");
        fails(DuplicateKeyException.class, () -> template.update("insert into spring_app.item values (?, 1)", id));
        var limited = new JdbcTemplate(source);
        limited.setQueryTimeout(1);
        fails(QueryTimeoutException.class, () -> limited.execute("select pg_sleep(20)"));
        var definition = new TransactionTemplate(new DataSourceTransactionManager(source));
        definition.setReadOnly(true);
        definition.setIsolationLevel(TransactionDefinition.ISOLATION_REPEATABLE_READ);
        same(definition.execute(status -> template.queryForObject("show transaction_isolation", String.class)), "repeatable read", "isolation");
    }

    private static void fails(Class<? extends Exception> kind, Runnable run) {
        try {
            run.run();
        } catch (RuntimeException error) {
            check(kind.isInstance(error), kind + ": " + error);
            return;
        }
        check(false, kind + ": nothing failed");
    }
}
