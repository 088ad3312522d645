-- What ANALYZE finds out, and what plans make of it.
create table ord (id int primary key, cust int, state text, day date, note text)

create table cust (id int primary key, nation int, name text)

create table line (ord int, part int, qty int, primary key (ord, part))

insert into cust select g, g % 25, 'c' || g from generate_series(1, 1000) g; insert into ord select g, g % 1000 + 1, case when g % 100 = 0 then 'open' when g % 10 = 0 then null else 'done' end, date '2020-01-01' + g / 20, repeat('x', g % 7) from generate_series(1, 20000) g; insert into line select g / 4 + 1, g % 4, g % 50 from generate_series(0, 79999) g

create index ord_cust on ord (cust)

create index ord_day on ord (day)

create index ord_state on ord (state)

analyze

select attname, inherited, null_frac, avg_width, n_distinct, most_common_vals, most_common_freqs, correlation from pg_stats where tablename = 'ord' and attname in ('id', 'note', 'state') order by attname

select tablename, attname, null_frac, avg_width, n_distinct, most_common_vals is null as spread, correlation from pg_stats where tablename <> 'ord' order by 1, 2

select relname, reltuples from pg_class where relname in ('ord', 'cust', 'line') order by 1

-- A common value and a rare one.
explain select * from ord where state = 'done' and day >= date '2022-01-01'

explain select * from ord where state = 'open' and day >= date '2021-01-01'

explain select * from ord where state is null

explain select * from ord where state is not null and note like 'xxx%'

explain select * from ord where day < date '2020-01-05' or day > date '2022-09-20'

explain select * from ord where state not in ('done', 'open')

-- The order of joins: from what leaves few rows.
explain select count(*) from line, ord, cust where line.ord = ord.id and ord.cust = cust.id and cust.nation = 3 and ord.state = 'open'

explain select cust.nation, sum(line.qty) from cust join ord on ord.cust = cust.id join line on line.ord = ord.id group by cust.nation

-- Two columns that belong together are no more selective than the table has rows.
explain select count(*) from line a join line b on a.ord = b.ord and a.part = b.part where a.qty = 7

-- Pages by a key of two columns, and by a condition that says the same.
explain select * from line where (ord, part) > (500, 2) order by ord, part limit 10

explain select * from line where ord > 500 or (ord = 500 and part > 2) order by ord, part limit 10

select * from line where (ord, part) > (500, 2) order by ord, part limit 3

select * from line where ord > 500 or (ord = 500 and part > 2) order by ord, part limit 3

select * from line where ord < 3 or (ord = 3 and part < 1) order by ord desc, part desc limit 3

-- Some columns only; the others keep what is known of them.
create table few (a int, b int)

insert into few values (1, 1), (2, 1), (3, 1)

analyze few (b)

select attname, n_distinct, most_common_vals, histogram_bounds from pg_stats where tablename = 'few' order by 1

insert into few values (4, 4), (5, 5)

analyze few (a)

select attname, n_distinct, most_common_vals, histogram_bounds from pg_stats where tablename = 'few' order by 1

analyze few (a, c)

analyze few (a, a)

vacuum few (a)

vacuum analyze few (b)

select attname, n_distinct, most_common_vals, most_common_freqs, histogram_bounds from pg_stats where tablename = 'few' order by 1

drop table few

select count(*) from pg_stats where tablename = 'few'
