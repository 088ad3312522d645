select 1, 'a', 1.5, null, true, 1+2*3, 7/2, 7.0/2, -5 % 3, 2^10

select 1/0

create table t (id int primary key, a text not null default 'x', b numeric(10,2), c varchar(3) check (c <> 'bad'), d timestamptz default '2020-01-01 00:00:00+00')

insert into t values (1,'one',1.239,'abc'),(2,default,2,'d') returning id, a, b, c

insert into t (id,b) values (3, 4.5), (1, 3)

select * from t where id = 3

insert into t (id) select g from generate_series(10, 15) g

select id, a, b, c from t order by id desc limit 3

select count(*), sum(id), avg(id), min(a), max(b) from t

select a, count(*) c, sum(id) from t group by a having count(*) > 0 order by c desc, a

update t set b = b + 1, a = upper(a) where id between 1 and 10 returning *

delete from t where id > 12

select id from t

insert into t (id,c) values (20,'toolong')

insert into t (id,c) values (20,'bad')

insert into t (id,a) values (20,null)

begin; insert into t (id) values (50); select count(*) from t; rollback

select count(*) from t

begin

select nope from t

select 1

rollback

create table s (id serial primary key, v bigint generated always as identity, n text unique)

insert into s (n) values ('a'),('b'),('a')

insert into s (n) values ('a'),('b') returning *

select currval('s_id_seq'), lastval(), nextval('s_id_seq')

create index si on s (n desc)

explain select * from s where n = 'a'

select t.id, s.n from t join s on t.id = s.id where t.id < 10

select t.id, s.n from t left join s on t.id = s.id order by t.id

copy s (n) from stdin
@@
q
w
\N
\.


copy s to stdout

copy (select id, n from s where n is not null) to stdout with (format csv, header)

copy s (id, n) from stdin csv
@@
100,"x,""y"
101,

select * from s where id in (100, 101)

drop table t, s

select * from t

create table pgbench_branches(bid int not null,bbalance int,filler char(88)) with (fillfactor=100)

alter table pgbench_branches add primary key (bid)

truncate pgbench_branches; vacuum analyze pgbench_branches

select case when 1 < 2 then 'a' else 'b' end, coalesce(null, 3), nullif(1,1), greatest(1,2.5), 'abc' like 'a%', 'x' || 1, substring('hello' from 2 for 3), trim('  x '), length('äb'), round(2.567, 2), abs(-3), '2020-01-01'::date + 5, cast('12' as int)

show server_version; show transaction isolation level; set timezone = 'Europe/Berlin'; show timezone

select '2020-06-01 12:00:00+00'::timestamptz

begin isolation level serializable

select 'abc' = 1

select 1 = '1', 1.0 = 1, 1 in (2,1), not true or false, null and false, null is null

select foo(1)

savepoint a

begin; savepoint a; create table z (i int); insert into z values (1); rollback to a; select * from z

rollback

prepare p as select $1::int + 1; execute p(41); deallocate p

begin; declare c cursor for select * from generate_series(1,5); fetch 2 from c; fetch all from c; close c; commit

selec 1

select 1 from

values (1,'a'),(2,'b')

create sequence sq start 5 increment 2 maxvalue 8

select nextval('sq'), nextval('sq')

select nextval('sq')

select setval('sq', 5, false); select nextval('sq'); alter sequence sq restart; drop sequence sq

/* hi */ -- there

select $1

-- The program's name is what v$session shows, whenever it is set, and for as long as that lasts.
set application_name = 'first'

select program from v$session where program in ('first', 'second')

begin; set application_name = 'second'; select program from v$session where program in ('first', 'second')

rollback

select program from v$session where program in ('first', 'second')

-- Columns made by casts have the outermost type's name; a date and an interval make a timestamp.
select true::int, 2.5::float8::int, '1'::text::int as own, case when true then 1::int end, case when true then null else 1::int end

select date '2024-01-31' + interval '1 day' as next, interval '2 hours' + date '2024-01-31' as later, date '2024-03-31' - interval '1 month' as before

select encode(decode('00ff5c41', 'hex'), 'escape') as e, encode('abc', 'base64') as b, decode('YWJj', 'base64') as d, encode(null, 'hex') is null as n

-- A prepared statement outlives its table, if another takes its place that has the same columns.
create table again (a int, b text); prepare over as select * from again; drop table again; create table again (a int, b text); insert into again values (1, 'x'); execute over

drop table again; create table again (a int, b varchar); execute over

-- A parameter without a value is no NULL.
select exists (select 1 where $1 = 'a')
