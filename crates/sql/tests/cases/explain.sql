create table t (id int primary key, grp int, pad text)

insert into t select g, g % 10, 'row ' || g from generate_series(1, 1000) g

create index t_grp on t (grp, id)

explain analyze select * from t where id = 7

explain (analyze, buffers) select pad from t where grp = 3 and pad <> 'row 13' order by pad limit 5

explain analyze select grp, count(*) from t where id < 500 group by grp having count(*) > 49

explain analyze select a.id, b.pad from t a join t b on b.id = a.grp where a.id between 10 and 14

explain analyze update t set pad = 'x' where grp = 4 and id < 100

explain analyze delete from t where pad = 'x'

explain analyze insert into t select id + 5000, grp, pad from t where id <= 10

explain analyze update t set pad = 'y' from (select max(id) as m from t) s where id = m

explain analyze select count(*) from t a, t b where a.grp = b.grp and a.pad < b.pad and a.grp > 7

explain update t set pad = 'z' where id = 3

explain update t set pad = 'z' from (select max(id) as m from t) s where id = m

explain delete from t using (values (1), (2)) v (k) where t.grp = v.k

explain insert into t select id + 9000, grp, initcap(pad) from t where id < 5

explain create table u (a int)

explain analyze select nosuch from t
