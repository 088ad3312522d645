-- Joins of the general lane read a table by its index where the other side gives few keys.
create table c (id int primary key, name text, region int)

create table o (id bigint primary key, c_id int, day date, note varchar(20), part smallint)

create index o_c on o (c_id, part)

create table l (o_id bigint, pos smallint, amount numeric(12,2), primary key (o_id, pos))

insert into c select g, 'c' || g, g % 7 from generate_series(1, 3000) g

insert into o select g, g % 3000 + 1, date '2026-01-01' + g % 300, 'n' || g, g % 5 from generate_series(1, 12000) g

insert into l select g / 3 + 1, g % 3, g from generate_series(1, 36000) g

analyze c

analyze o

analyze l

-- Of three tables, by two keys one after the other.
explain select c.name, count(*), sum(l.amount) from c join o on o.c_id = c.id join l on l.o_id = o.id where c.id in (5, 17) group by c.name order by 1

explain analyze select c.name, count(*), sum(l.amount) from c join o on o.c_id = c.id join l on l.o_id = o.id where c.id in (5, 17) group by c.name order by 1

select c.name, count(*), sum(l.amount) from c join o on o.c_id = c.id join l on l.o_id = o.id where c.id in (5, 17) group by c.name order by 1

-- A side that is small by its statistics only, and one that is after it was aggregated.
explain analyze select count(*) from o join l on l.o_id = o.id where o.note = 'n77' and lower(o.note) = 'n77'

explain analyze select o.id, o.day from o join (select max(id) as m from c group by region) x on x.m = o.id where initcap(o.note) > 'N' order by 1

-- What else the table's own filter says belongs to the key.
explain analyze select o.id from c, o where o.c_id = c.id and o.part = 3 and c.name = 'c77' and upper(o.note) like 'N%' order by 1

-- Left, semi and anti joins; rows without a partner.
explain analyze select c.id, o.id from c left join o on o.c_id = c.id and o.part = 1 and upper(o.note) like 'N%' where c.id between 1 and 4 order by 1, 2

select c.id, o.id from c left join o on o.c_id = c.id and o.part = 1 and upper(o.note) like 'N%' where c.id between 1 and 4 order by 1, 2

explain analyze select count(*) from o where o.c_id in (select id from c where name = 'c12')

select count(*) from o where o.c_id in (select id from c where name = 'c12')

explain analyze select c.id from c where c.id < 6 and not exists (select 1 from o where o.c_id = c.id and o.part = 2) order by 1

select c.id from c where c.id < 6 and not exists (select 1 from o where o.c_id = c.id and o.part = 2) order by 1

-- Too many keys: read as a whole. Not known before.
explain analyze select count(*) from c join o on o.c_id = c.id join l on l.o_id = o.id where initcap(c.name) > 'A'

-- A right join keeps rows that no key leads to.
explain analyze select count(*), count(c.id) from c right join o on o.c_id = c.id and c.name = 'c12' and o.part + 0 = 1 where initcap(o.note) > 'A'

-- A key that is NULL leads nowhere; one that no smallint can be neither.
explain analyze select x.k, l.o_id from (values (null::bigint), (3), (70000)) x (k) left join l on l.o_id = x.k order by 1, 2

explain analyze select x.k, count(o.id) from (values (null::bigint), (3), (70000)) x (k) left join o on o.c_id = 9 and o.part = x.k group by x.k order by 1

-- What the transaction itself has done is seen.
begin

update o set c_id = 5 where id = 1

delete from o where id = 4

select c.name, count(*), count(l.pos) from c join o on o.c_id = c.id left join l on l.o_id = o.id where c.id = 5 group by 1

rollback

select c.name, count(*), count(l.pos) from c join o on o.c_id = c.id left join l on l.o_id = o.id where c.id = 5 group by 1

-- What a recursive query joins is read in each round.
with recursive r as (select 1 as id, 0 as depth union all select o.c_id + 1, r.depth + 1 from r join o on o.id = r.id where r.depth < 4 and initcap(o.note) > 'A') select * from r order by 2

-- Long lists are one function, by which an index is found.
explain analyze select count(*) from c, o, l where o.c_id = c.id and l.o_id = o.id and c.id in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, null)

select count(*) over (), c.id in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 2999, 3000000000) as found, c.name not in ('c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8', 'c9', 'c10', 'c11', 'c12', 'c13', 'c14', 'c15', 'c16', 'c17') as other, c.id not in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, null) as never from c where id % 1000 in (1, 999) order by id

select id = any(array['1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12', '13', '14', '15', '16', '3000']::int[]) as found, count(*) over () from c where id % 1000 = 0 order by id

select id in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17) as low, count(*) from c join (values (1)) x on true group by id in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17) order by 2

-- A table that has never had a row.
create table nothing (id int primary key, k int)

select c.id, nothing.id from c left join nothing on nothing.id = c.id and initcap(c.name) > 'A' where c.id < 3 order by 1

select (select id from c where id = 1), (select id from nothing)
