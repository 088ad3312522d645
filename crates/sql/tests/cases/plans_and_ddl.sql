create sequence sq start 5 increment 2 maxvalue 8

select nextval('sq'), nextval('sq')

select nextval('sq')

select setval('sq', 5, false); select nextval('sq'); alter sequence sq restart; drop sequence sq

create table t (a int, b varchar(20), c bigint, primary key (a, b)); create index ti on t (b); create index tc on t (c desc)

insert into t select g, 'n' || g, g * 10 from generate_series(1, 20) g

explain select * from t where a = 1 and b in ('n1', 'n2')

select * from t where a = 1 and b in ('n2', 'n1')

explain select * from t where b like 'n1%'

select count(*) from t where b like 'n1%'

explain select * from t where c > 50 order by c desc limit 3

select * from t where c > 150 order by c limit 2

select * from t where c >= 150 and c < 170 order by c desc

explain select * from t where a in (3,1,2,3,99999999999)

select a from t where a in (3,1,2,3,99999999999)

select a from t where c = 30::int and c < 1e3

prepare q as update t set c = c + $1 where a = $2; execute q (5, 3); select c from t where a = 3

select a, b from t order by b desc, a limit 3 offset 1

select a from t where a = 5 for update

alter table t add column d text; select d from t where a = 1; update t set d = 'x' where a = 1; select * from t where a < 3

alter table t rename column d to e; alter table t drop column e; select * from t where a = 1

alter table t alter column c set not null; insert into t (a, b) values (100, 'x')

create index ti on t (a)

drop index t_pkey

drop table if exists nope; create table if not exists t (a int)

begin; set local timezone = 'Asia/Tokyo'; show timezone; commit; show timezone

begin; create table u (i int); insert into u values (1); commit; select * from u

update u set i = i / 0

update u set nope = 1

insert into u values (1, 2)

insert into u values ('abc')

select i::text || 'x' from u where i is not null and i <> 3

begin; declare c cursor with hold for select i from u; commit; fetch 1 from c; close c

lock table u in share mode

begin; lock table u; commit

select set_config('app.x', 'hello', false), current_setting('app.x'), current_setting('nope', true)

select pg_advisory_lock(1), pg_try_advisory_lock(1,2), pg_advisory_unlock(5), pg_backend_pid() is not null

select now() = transaction_timestamp(), current_date = now()::date

discard all

create table d (a smallint, b real, c double precision, e date, f timestamp, g uuid, h bytea, i boolean, j char(5))

insert into d values (1, 1.5, 2.5, '2020-02-29', '2020-02-29 12:34:56.789', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\xdead', true, 'ab')

select *, j || '|', j = 'ab', length(j) from d

select sum(a), avg(b), max(e), min(g::text), count(h) from d group by i

select 32767::smallint + 1::smallint

select 2147483647 + 1, 9223372036854775807 + 1

select 2147483647 + 1

select cast(1e10 as int)

insert into d (a) values (40000)