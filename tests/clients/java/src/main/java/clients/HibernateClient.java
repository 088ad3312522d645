package clients;

import static clients.Servers.check;
import static clients.Servers.same;

import jakarta.persistence.CascadeType;
import jakarta.persistence.CollectionTable;
import jakarta.persistence.Column;
import jakarta.persistence.DiscriminatorColumn;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Embeddable;
import jakarta.persistence.Embedded;
import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;
import jakarta.persistence.FetchType;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.Inheritance;
import jakarta.persistence.InheritanceType;
import jakarta.persistence.LockModeType;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.SequenceGenerator;
import jakarta.persistence.Table;
import jakarta.persistence.UniqueConstraint;
import jakarta.persistence.Version;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.math.BigDecimal;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.HashSet;
import java.util.UUID;
import org.hibernate.SessionFactory;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.boot.registry.StandardServiceRegistryBuilder;
import org.hibernate.cfg.Configuration;
import org.hibernate.dialect.PostgreSQLDialect;
import org.hibernate.type.SqlTypes;

/**
 * Hibernate over HikariCP: makes, updates and validates a schema, drops it; entities with relations,
 * sequences, identity columns, enums (as strings and as PostgreSQL's), json, arrays, inheritance;
 * queries in its language; locks, optimistic and pessimistic, from two instances.
 */
final class HibernateClient {
    private HibernateClient() {}

    enum Mood { SAD, OK }

    enum Colour { RED, GREEN }

    @Embeddable
    public static class Address {
        String street;
        @Column(length = 10)
        String zip;
    }

    @Entity(name = "Person")
    @Table(name = "person", schema = "hibernate_app",
        uniqueConstraints = @UniqueConstraint(name = "person_mail", columnNames = {"mail", "born"}),
        indexes = @Index(name = "person_born", columnList = "born desc, mail"))
    public static class Person {
        @Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "person_seq")
        @SequenceGenerator(name = "person_seq", sequenceName = "hibernate_app.person_seq", allocationSize = 10)
        Long id;
        @Version
        int version;
        @Column(nullable = false, length = 80)
        String name;
        String mail;
        LocalDate born;
        Instant seen;
        LocalDateTime made;
        Duration pause;
        @Column(precision = 12, scale = 2)
        BigDecimal money;
        double weight;
        boolean rich;
        UUID token;
        byte[] image;
        @Enumerated(EnumType.STRING)
        Mood mood;
        @Enumerated(EnumType.STRING)
        @JdbcTypeCode(SqlTypes.NAMED_ENUM)
        Colour named;
        @JdbcTypeCode(SqlTypes.JSON)
        Map<String, Object> data;
        @JdbcTypeCode(SqlTypes.ARRAY)
        List<String> tags;
        int[] numbers;
        @Column(columnDefinition = "text")
        String notes;
        @Embedded
        Address address;
        @ElementCollection
        @CollectionTable(name = "phone", schema = "hibernate_app")
        Set<String> phones = new HashSet<>();
        @OneToMany(mappedBy = "owner", cascade = CascadeType.ALL, orphanRemoval = true)
        List<Thing> things = new ArrayList<>();
        @ManyToMany
        Set<Club> clubs = new HashSet<>();
    }

    @Entity(name = "Thing")
    @Table(name = "thing", schema = "hibernate_app")
    @Inheritance(strategy = InheritanceType.SINGLE_TABLE)
    @DiscriminatorColumn(name = "kind")
    public static class Thing {
        @Id
        @GeneratedValue(strategy = GenerationType.IDENTITY)
        Long id;
        String label;
        @ManyToOne(fetch = FetchType.LAZY, optional = false)
        Person owner;
    }

    @Entity(name = "Car")
    public static class Car extends Thing {
        Integer wheels;
    }

    @Entity(name = "Club")
    @Table(name = "club", schema = "hibernate_app")
    @Inheritance(strategy = InheritanceType.JOINED)
    public static class Club {
        @Id
        @GeneratedValue(strategy = GenerationType.UUID)
        UUID id;
        @Column(unique = true)
        String title;
    }

    @Entity(name = "Chess")
    @Table(name = "chess", schema = "hibernate_app")
    public static class Chess extends Club {
        int boards;
    }

    /** A column more than the table has. */
    @Entity(name = "Club")
    @Table(name = "club", schema = "hibernate_app")
    public static class LaterClub {
        @Id
        UUID id;
        @Column(unique = true)
        String title;
        Integer members;
        @ManyToOne
        LaterClub parent;
    }

    private static HikariDataSource pool(String url) {
        var config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername(Servers.USER);
        config.setMaximumPoolSize(4);
        config.setConnectionInitSql("select 1");
        return new HikariDataSource(config);
    }

    private static SessionFactory factory(HikariDataSource pool, String schema, Class<?>... entities) {
        var configuration = new Configuration();
        for (var entity : entities) {
            configuration.addAnnotatedClass(entity);
        }
        configuration.setProperty("hibernate.hbm2ddl.auto", schema);
        configuration.setProperty("hibernate.hbm2ddl.halt_on_error", "true");
        configuration.getProperties().put("hibernate.connection.datasource", pool);
        configuration.setProperty("hibernate.jdbc.batch_size", "20");
        var registry = new StandardServiceRegistryBuilder().applySettings(configuration.getProperties()).build();
        return configuration.buildSessionFactory(registry);
    }

    private static final Class<?>[] ALL = {Person.class, Thing.class, Car.class, Club.class, Chess.class};

    static void run() throws Exception {
        Servers.run(Servers.URL, "drop schema if exists hibernate_app cascade", "drop type if exists colour cascade", "create schema hibernate_app");
        try (var here = pool(Servers.URL); var there = pool(Servers.OTHER)) {
            try (var factory = factory(here, "create", ALL)) {
                write(factory);
            }
            factory(there, "validate", ALL).close();
            try (var factory = factory(there, "none", ALL); var first = factory(here, "none", ALL)) {
                read(factory);
                queries(factory);
                locks(first, factory);
            }
            // It makes the type of an enum anew, and the columns that had it.
            factory(here, "update", ALL).close();
            factory(here, "update", LaterClub.class).close();
            same(Servers.rows(Servers.OTHER, "select string_agg(column_name, ',' order by column_name) from information_schema.columns where table_schema = 'hibernate_app' and table_name = 'club'"),
                List.of("id,members,parent_id,title"), "hibernate updates");
            try {
                factory(here, "validate", Extra.class).close();
                check(false, "hibernate misses nothing");
            } catch (RuntimeException e) {
                check(e.toString().contains("missing"), e.toString());
            }
            Servers.run(Servers.URL, "alter table hibernate_app.club drop column parent_id");
            factory(there, "create-drop", ALL).close();
            same(Servers.rows(Servers.URL, "select count(*) from information_schema.tables where table_schema = 'hibernate_app'"),
                List.of("0"), "hibernate drops");
        }
        Servers.run(Servers.URL, "drop schema hibernate_app cascade", "drop type if exists colour cascade");
    }

    @Entity(name = "Extra")
    @Table(name = "extra", schema = "hibernate_app")
    public static class Extra {
        @Id
        int id;
    }

    private static void write(SessionFactory factory) {
        factory.inTransaction(session -> {
            var club = new Chess();
            club.title = "Kings";
            club.boards = 8;
            session.persist(club);
            for (int i = 0; i < 25; i++) {
                var person = new Person();
                person.name = "person " + i;
                person.mail = i + "@example.org";
                person.born = LocalDate.of(1970, 1, 1).plusDays(i);
                person.seen = Instant.ofEpochSecond(1_000_000 + i);
                person.made = LocalDateTime.of(2020, 1, 2, 3, 4, 5);
                person.pause = Duration.ofSeconds(90);
                person.money = new BigDecimal("10.25");
                person.weight = 0.5;
                person.rich = i % 2 == 0;
                person.token = new UUID(1, i);
                person.image = new byte[] {0, 1, (byte) 0xff};
                person.mood = Mood.OK;
                person.named = i % 2 == 0 ? Colour.RED : Colour.GREEN;
                person.data = Map.of("n", i, "list", List.of("a", "b"));
                person.tags = List.of("a,b", "c\"d");
                person.numbers = new int[] {i, 2};
                person.notes = "long";
                person.address = new Address();
                person.address.street = "Main";
                person.phones.add("1");
                person.phones.add("2");
                person.clubs.add(club);
                var car = new Car();
                car.label = "car";
                car.wheels = 4;
                car.owner = person;
                person.things.add(car);
                session.persist(person);
            }
        });
    }

    private static void read(SessionFactory factory) {
        factory.inTransaction(session -> {
            var person = session.createQuery("from Person where name = 'person 3'", Person.class).getSingleResult();
            same(person.born, LocalDate.of(1970, 1, 4), "date");
            same(person.seen, Instant.ofEpochSecond(1_000_003), "instant");
            same(person.pause, Duration.ofSeconds(90), "duration");
            same(person.money, new BigDecimal("10.25"), "money");
            same(person.token, new UUID(1, 3), "uuid");
            same(person.image.length, 3, "bytes");
            same(person.named, Colour.GREEN, "enum");
            same(person.data.get("list"), List.of("a", "b"), "json");
            same(person.tags, List.of("a,b", "c\"d"), "array");
            same(person.numbers[0], 3, "array of integers");
            same(person.phones, Set.of("1", "2"), "collection");
            check(person.things.get(0) instanceof Car car && car.wheels == 4, "inheritance");
            check(person.clubs.iterator().next() instanceof Chess chess && chess.boards == 8, "joined inheritance");
            person.phones.remove("1");
            person.things.clear();
            person.named = null;
        });
    }

    private static void queries(SessionFactory factory) {
        factory.inTransaction(session -> {
            Object[] row = session.createQuery(
                "select p.rich, count(*), sum(p.money), max(p.born) from Person p left join p.things t group by p.rich having count(*) > 1 order by p.rich", Object[].class)
                .getResultList().get(0);
            same(row[1], 12L, "group");
            same(session.createQuery("from Person p order by p.born desc", Person.class).setFirstResult(5).setMaxResults(10).getResultList().size(), 10, "page");
            same(session.createQuery("select p from Person p join fetch p.phones where p.address.street like :s and p.named = :m", Person.class)
                .setParameter("s", "Ma%").setParameter("m", Colour.RED).getResultList().size(), 13, "join fetch");
            same(session.createQuery("select count(p) from Person p where array_contains(p.tags, 'a,b')", Long.class).getSingleResult(), 25L, "array_contains");
            same(session.createQuery("select year(p.born), extract(month from p.born) from Person p where p.id = (select min(q.id) from Person q)", Object[].class)
                .getSingleResult()[0], 1970, "year");
            same(session.createQuery("select t.label from Thing t where type(t) = Car and t.owner.name in :names", String.class)
                .setParameter("names", List.of("person 1", "person 2")).getResultList().size(), 2, "type");
            same(session.createQuery("select listagg(t.title, ',') within group (order by t.title) from Club t", String.class).getSingleResult(), "Kings", "listagg");
            same(session.createQuery("select p.name from Person p where p.made + 1 day > local datetime - 100 year order by p.name limit 1", String.class).getSingleResult(), "person 0", "durations");
            same(session.createMutationQuery("update Person set money = money * 2 where rich").executeUpdate(), 13, "update");
            same(session.createMutationQuery("update versioned Person set notes = 'x' where name = 'person 1'").executeUpdate(), 1, "versioned");
            same(session.createMutationQuery("insert into Thing (label, owner) select 'of ' || p.name, p from Person p where p.name < 'person 12' on conflict do nothing").executeUpdate(), 4, "insert select");
            same(session.createMutationQuery("delete from Thing where label like 'of %'").executeUpdate(), 4, "delete");
            session.createNativeMutationQuery("insert into hibernate_app.club (id, title) values (gen_random_uuid(), 'of all')").executeUpdate();
            same(session.createMutationQuery("delete from Club where title like 'of %'").executeUpdate(), 1, "delete of joined tables");
            same(session.createQuery("with c as (select p.rich as rich, count(*) as n from Person p group by p.rich) select max(n) from c", Long.class).getSingleResult(), 13L, "with");
            same(session.createQuery("select row_number() over (partition by p.rich order by p.id) from Person p order by 1 desc limit 1", Long.class).getSingleResult(), 13L, "window");
            try (var stream = session.createQuery("from Person", Person.class).setFetchSize(5).stream()) {
                same(stream.count(), 25L, "stream");
            }
        });
    }

    private static void locks(SessionFactory here, SessionFactory there) {
        try (var first = here.openSession(); var second = there.openSession()) {
            first.beginTransaction();
            second.beginTransaction();
            var one = first.createQuery("from Person where name = 'person 7'", Person.class).getSingleResult();
            var other = second.createQuery("from Person where name = 'person 7'", Person.class).getSingleResult();
            one.notes = "first";
            first.getTransaction().commit();
            other.notes = "second";
            try {
                second.getTransaction().commit();
                check(false, "a change is lost");
            } catch (OptimisticLockException e) {
                second.getTransaction().rollback();
            }
        }
        try (var first = here.openSession(); var second = there.openSession()) {
            first.beginTransaction();
            second.beginTransaction();
            Long id = first.createQuery("select id from Person where name = 'person 8'", Long.class).getSingleResult();
            first.find(Person.class, id, LockModeType.PESSIMISTIC_WRITE);
            try {
                second.find(Person.class, id, LockModeType.PESSIMISTIC_WRITE, Map.of("jakarta.persistence.lock.timeout", 0));
                check(false, "two hold a row");
            } catch (jakarta.persistence.PersistenceException e) {
                check(e.toString().toLowerCase().contains("lock"), e.toString());
                second.getTransaction().rollback();
            }
            second.beginTransaction();
            same(second.createQuery("from Person order by id", Person.class).setMaxResults(25).setHibernateLockMode(org.hibernate.LockMode.UPGRADE_SKIPLOCKED).getResultList().size(), 24, "skip locked");
            second.getTransaction().commit();
            first.find(Person.class, id, LockModeType.PESSIMISTIC_FORCE_INCREMENT);
            first.getTransaction().commit();
        }
    }
}
