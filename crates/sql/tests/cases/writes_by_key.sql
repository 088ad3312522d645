create table t (id int primary key, a int, v text, c char(5)); create index t_a on t (a)

create table o (id bigint primary key, tid int, v text, n numeric, s smallint)

insert into t select g, g % 1000, 'v' || g, 'c' || g % 100 from generate_series(1, 20000) g; insert into o select g, g * 3, 'o' || g, g, g from generate_series(1, 20) g; analyze t; analyze o

explain analyze update t set v = o.v from o where o.tid = t.id and o.id < 3

explain analyze update t set v = o.v from o where o.id = t.id

explain analyze delete from t using o where t.a = 5

begin; update t set v = o.v from o where o.s = t.id and t.a > 3; delete from t using o where o.tid = t.id and o.n > 5; delete from t where id in (select tid from o where v like 'o1%'); delete from t where id = (select max(tid) + 30 from o); delete from t where exists (select 1 from o where o.tid = t.id); update t set v = (select v from o where o.tid = t.id) where t.id < 4; delete from t using o o1, o o2 where o1.id = o2.tid and t.a = o2.id; with x as (select id from o order by n limit 3) delete from t using x where x.id = t.id; delete from t where id not in (select tid from o where tid is not null) and id = 500; delete from t where (id, a) in (select tid + 1, tid + 1 from o); delete from t where id < (select min(tid) + 5 from o); delete from t where a in (select id from o); delete from t where (select id from o where id > 1000) = id; delete from t where c in (select 'c' || id from o where id < 3); rollback

update t set v = null from o left join t u on u.id = o.tid and u.a = 3 where t.id = u.id

update t set v = 'twice' from (select 30 as k union all select 30) x where x.k = t.a

select count(*), min(id), max(id) from t where v = 'twice'

update t set v = o.v from o where o.id = t.id and o.id > (select 1 / (o.id - 5) from o where id = 5)

update t set v = 'x' where id = (select id from t where a = 500 order by id limit 1 for update skip locked) returning id, v

with n as (select id, id as "Twice" from t where a = 501 order by id desc limit 2 for update skip locked) update t set v = 'y' from n where n."Twice" = t.id returning t.id

delete from t where id in (select id from t where a = 502 order by id limit 2 for update nowait) returning id

select z.x from (select id as x, id from t where a = 7 order by id desc limit 2 for share) z where x > 0

insert into o (id, tid) select id, a from (select id, a from t where a = 8 order by id limit 2 for update) q

prepare q as update t set v = $2 where id = (select id from t where a = $1 order by id limit 1 for update); execute q (9, 'nine'); select id, v from t where v = 'nine'

select * from o where exists (select 1 from t where t.id = o.id for update)

with t as (select 1 as id) select * from (select id from t for update) x

begin read only; select * from (select id from t where a = 7 for update) x

rollback

delete from t using o where o.id = t.id returning t.id, o.v

select count(*) from t where id in (select id from o)
