create table kv (k int primary key, v text not null default 'none', n int, constraint kv_n_key unique (n), check (n <> 13))

create table other (id int, label text, amount numeric(8,2), day date)

insert into kv values (1, 'one', 10), (2, 'two', 20), (3, 'three', 30)

insert into other values (1, 'uno', 1.5, '2020-01-01'), (2, 'dos', 2.5, '2020-01-02'), (2, 'deux', 3.5, null), (9, 'neuf', 4, '2020-02-01')

insert into kv values (1, 'again', 11) on conflict do nothing

insert into kv values (1, 'again', 11), (4, 'four', 40), (4, 'vier', 41) on conflict (k) do nothing returning *

insert into kv values (5, 'five', 20) on conflict (k) do nothing

insert into kv (k, v, n) values (1, 'uno', 11) on conflict (k) do update set v = excluded.v, n = kv.n + excluded.n returning k, v, n

insert into kv as t (k, v) values (2, 'dos') on conflict on constraint kv_pkey do update set v = t.v || '/' || excluded.v where t.n < 5

insert into kv as t (k, v) values (2, 'dos') on conflict on constraint kv_pkey do update set (v, n) = (t.v || '/' || excluded.v, 22)

select * from kv order by k

insert into kv (k) values (7), (7) on conflict (k) do update set v = 'twice'

insert into kv (k, n) values (8, 13) on conflict do nothing

insert into kv (k, n) values (8, 30) on conflict (n) do update set k = 33

insert into kv (k) values (1) on conflict (v) do nothing

insert into kv (k) values (1) on conflict (nosuch) do nothing

insert into kv (k) values (1) on conflict on constraint nosuch do nothing

insert into kv (k) values (1) on conflict do update set v = 'x'

insert into kv (k) values (1) on conflict (k) do update set v = v

insert into kv select id, label, id * 100 from other where id is not null on conflict (k) do update set v = kv.v || '+' || excluded.v

insert into kv select id + 10, min(label) from other group by id on conflict (k) do nothing

select * from kv order by k

update kv set v = o.label, n = null from other o where o.id = kv.k and o.amount = 1.5 returning kv.k, v, o.amount, label

update kv set n = (select count(*) from other where other.id = kv.k) where k in (select id from other) returning k, n

update kv set v = 'dated' from other where day = '2020-02-01' and id = k

update kv t set v = upper(t.v) from (select id, max(amount) as m from other group by id) s where s.id = t.k and s.m > 3

update kv set (v, n) = ('pair', 77) where k = (select max(k) from kv)

update kv set v = o.label from other o where o.id = kv.k and kv.k = 2

update kv set v = null from other where id = k

select * from kv order by k

delete from kv using other o where o.id = kv.k and o.label = 'neuf' returning kv.*, o.day

delete from kv where not exists (select 1 from other where other.id + 10 = kv.k or other.id = kv.k)

with low as (select k from kv where k < 3) delete from kv using low where low.k = kv.k returning kv.k

with src as (select g from generate_series(100, 102) g) insert into kv (k, v) select g, 'gen' || g from src returning k, v

with src as (select 100 as g) update kv set v = 'cte' from src where k = g returning kv.k, v

insert into kv (k, v) with q as (select 200 as k) select k, 'in' from q

insert into kv (k, n) values ((select max(k) + 1 from kv), 5), (default, 6) returning k, n

insert into kv (k, n, v) values ((select max(k) + 1 from kv), 5, default), (300, (select 6), (select 'six')) returning *

select * from kv order by k

with gone as (delete from kv where k = 300 returning k) select * from gone

update kv set nosuch = 1 where k in (select 1)

update kv set n = 'abc' where k in (select k from kv)

update kv set k = 1 from other where other.id = 2

-- NATURAL JOIN and USING beside a target.
create table mt (id int primary key, k int, v text)

create table ma (k int, x text)

create table mb (k int, y text, x text)

insert into mt select g, g % 3, 'v' || g from generate_series(1, 6) g

insert into ma values (0, 'a0'), (1, 'a1'), (null, 'an')

insert into mb values (0, 'b0', 'a0'), (1, 'b1', 'other'), (2, 'b2', null), (null, 'bn', 'an')

update mt set v = ma.x || y from ma join mb using (k) where mt.k = ma.k returning id, v, y

update mt set v = y from ma natural join mb where mb.k = mt.k returning mt.*

update mt set v = coalesce(y, '-') from ma full join mb using (x) where mt.id = length(x) + 1 returning id, v, x

delete from mt using ma right join mb using (k, x) where mt.k = mb.k and y > 'b0' returning id, mb.k, x

delete from mt using ma natural left join mb where ma.k = mt.k and initcap(y) = 'B0' returning mt.id

select * from mt order by id

-- A name that the target and FROM both have is neither's.
create table wa (k int primary key, v int); create table wb (k int, w int); create table wc (k int, z int); insert into wa values (1, 0), (2, 0); insert into wb values (1, 10); insert into wc values (1, 20)

update wa set v = k from wb where wa.k = wb.k

update wa set v = k from wb join wc using (k) where wa.k = wb.k

update wa set v = w from wb where wa.k = wb.k returning k

delete from wa using wb join wc using (k) where wa.k = w returning k

update wa set v = wa.k + w + z from wb join wc using (k) where wa.k = wb.k returning wa.k, v, w

with q (k, n) as (select 2, 5) update wa set v = k from q where wa.k = q.k

with q (kk, n) as (select 2, 5) update wa set v = k + n from q where wa.k = kk returning k, v

insert into wa values (5, 1), (6)
