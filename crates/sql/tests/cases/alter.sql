create table t (id int primary key, v text)

insert into t values (1, 'a'), (2, 'b')

alter table t add column n int default 7 not null, add d date default '2020-02-29', add column plain text

insert into t (id, v, n) values (3, 'c', 8)

select * from t order by id

select a.id, b.n, b.d from t a join t b on b.id = a.id where a.n = 7 order by a.id

create index t_n on t (n)

select id from t where n = 7 order by id

explain select id from t where n = 7

alter table t alter column n set default 9

insert into t (id) values (4)

select id, n, d from t order by id

update t set v = 'z' where id = 1

select * from t where id = 1

alter table t add column must int not null

alter table t add column k int unique default 5

alter table t add column k int unique

alter table t add column c int default 3 check (c > 2)

update t set c = 1 where id = 1

alter table t add column bad int default 1 check (bad > 2)

alter table t add column serial_no serial, add column r double precision default random(), add column at timestamptz default now()

select id, serial_no, r between 0 and 1, at is not null, c from t order by serial_no

select count(distinct at), count(distinct r) from t

insert into t (id) values (5) returning serial_no

alter table t drop column r, drop column at

alter table t rename column c to "Odd Name"

update t set "Odd Name" = 1 where id = 1

alter table t drop column "Odd Name"

alter table t drop column n

select id from t where id = 2

insert into t (id, v) values (2, 'again')

alter table t drop column id

insert into t (v) values ('no key')

select v, d, k from t order by v, d

alter table t add primary key (v)

alter table t add constraint t_v check (v <> 'q'), add constraint t_v2 unique (v)

insert into t values ('q')

alter table t drop constraint t_v, drop constraint t_v2, drop constraint if exists nosuch

insert into t values ('q')

alter table t drop constraint t_v

alter table t alter v drop not null

alter table t drop constraint t_pkey, alter v drop not null

insert into t values (null)

alter table t alter v set not null

delete from t where v is null

alter table t alter v set not null

begin

alter table t add column gone int default 1

select gone from t limit 1

rollback

select gone from t

create table e (a int)

alter table e add column must int not null

create table wide (a int default 1, b numeric(6,2), c bytea, d uuid, e timestamp)

insert into wide values (1)

alter table wide add f numeric default 1.50, add g bytea default '\x00ff', add h boolean default true, add i char(4) default 'ab', add j real default 1.1, add k timestamp default '2020-01-01 10:00:00.123456', add l numeric(5,1) default 2.25

select * from wide

select f, g, h, i, j, k, l, count(*) over () from wide
