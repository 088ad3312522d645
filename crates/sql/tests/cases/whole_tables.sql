-- A whole table is read block by block, with an index as without, unless the index brings something.
create table p (id int primary key, v int, s text)

create table n (id int, v int, s text)

-- Not in the order of the key.
insert into p select (g * 7) % 100, g % 10, 's' || g from generate_series(1, 12) g

insert into n select * from p

explain select count(*) from p

explain select count(*) from n

explain select v from p

explain select max(v), min(id) from p

explain select v, count(*) from p group by v order by v limit 3

explain select v from p limit 3

explain select v from p where v > 3 limit 3

explain select id from p where v > 3 offset 3

explain select id from p for update

explain select id from p limit 1 for update skip locked

explain update p set v = v + 1

explain delete from p

explain insert into n select * from p

-- The order that is asked for, a condition that it serves.
explain select v from p order by id

explain select v from p order by id desc limit 3

explain select v from p where v > 3 order by id limit 3

explain select v from p where v > 3 order by id

explain select count(*) from p where id < 5

explain select max(v) from p where id in (1, 2)

-- The least and the greatest value stand at an index's ends; what is not known has no part in it.
explain select max(id) from p

explain select min(id) + 1 as next from p having min(id) > 0

explain select max(id) from p where id < 50

explain select max(id) from p where v = 3

explain select count(id) from p

create index on n (v, id)

insert into n values (1, null, null), (null, 3, null)

explain select max(v) from n

explain select max(id) from n where v = 3

select max(v), min(v) from n

select max(v) from n

select min(v) from n

select max(id) from n where v = 3

select max(id) from p where id < 50

select min(id) + 1 as next from p having min(id) > 0

select max(id) from p where id > 5000

delete from n where id = 1 or id is null

drop index n_v_id_idx

-- Pairs without a condition: with a LIMIT they end soon, without one they are the tree lane's.
explain select p.id, n.id from p, n limit 5

explain select p.id, n.id from n, p limit 5 offset 2

explain select p.id, n.id from n, p order by n.v limit 5

explain select p.id, n.id from p, n order by p.id limit 5

explain select count(*) from n, p limit 5

explain select p.id, n.id from n, p limit 500000

explain select p.id, n.id from n, p where n.v < p.v limit 5

-- Rows come as they lie.
select id from p limit 4

select id from n limit 4

begin

declare c cursor for select id from p

fetch 3 from c

update p set v = v + 100, id = id + 1000

fetch 2 from c

select count(*), min(id), max(id), sum(v) from p

delete from p

fetch 2 from c

select count(*) from p

rollback

create table q as select * from p

select count(*), sum(id), sum(v) from q

copy (select id from p limit 3) to stdout

copy p (id) to stdout

-- A name in GROUP BY is a column of the table before it is one of the select list.
select v % 2 as id, count(*) from p group by id

select v % 2 as odd, count(*) from p group by odd order by odd
