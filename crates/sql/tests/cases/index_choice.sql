-- Of several indexes that fit a condition the one is taken that leads to fewer rows, as far as statistics say.
create table e (id int primary key, kind smallint, day date, who text, amount float8)

create index e_kind on e (kind)

create index e_kind_amount on e (kind, amount)

create index e_day on e (day)

create index e_who on e (who)

insert into e select g, g % 3, date '2020-01-01' + g / 20, 'w' || g % 2500, g from generate_series(1, 20000) g

-- Nothing is known: equality before ranges.
explain select * from e where kind = 1 and day > date '2022-09-20'

analyze e

explain select * from e where kind = 1 and day > date '2022-09-20'

explain select * from e where kind = 1 and day > date '2019-09-20'

explain select * from e where kind = 1 and day between date '2021-01-01' and date '2021-01-02' and who in ('w1', 'w2')

explain select * from e where kind = 1 and who = 'w7'

explain select * from e where kind = 1 and amount < 50

explain select * from e where id in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20) and who = 'w3'

explain select * from e where kind = 1 and amount + 0 = 3

-- Bounds that are known only later, and such as lie outside of what was seen.
prepare p as select count(*) from e where day > $1 and kind = 2

execute p ('2022-09-20')

explain select * from e where day > date '2030-01-01' and kind = 2

explain select * from e where day < '-infinity' and kind = 2

-- An index that leads to nearly all rows is not used; nor, for an aggregate, one that leads to a tenth of them, as a scan has batches. An order, or
-- a limit, may be worth it.
explain select who from e where id > 200

explain select who from e where id > 19000

explain select who from e where amount > 200

explain select sum(amount) from e where id > 200

explain select sum(amount) from e where id > 17000

explain select sum(amount) from e where id > 19990

explain select who from e where id > 200 order by id

explain select who from e where id > 200 limit 5

explain select who from e where id = 5

explain update e set who = 'x' where id > 200

explain update e set who = 'x' where id > 19990

create table ranged (id int primary key, k int)

insert into ranged select i, i from generate_series(1, 20000) i

analyze ranged

prepare of_range(int, int) as select sum(k) from ranged where id between $1 and $2

explain execute of_range(5, 104)

execute of_range(5, 104)
