-- Aggregates over a large table are computed by the general lane, with the direct lane's answers and columns.
create table big (a int, b bigint, c double precision, d text)

insert into big select g, g * 2, g / 4.0, repeat('x', 300) from generate_series(1, 40000) g

create table small (a int, b bigint, c double precision, d text)

insert into small select g, g * 2, g / 4.0, repeat('x', 300) from generate_series(1, 40) g

explain select count(*), sum(a), avg(b) from small

explain select count(*), sum(a), avg(b) from big

select count(*), sum(a), avg(b), min(c), max(length(d)) from big

select a % 4, count(*), sum(b), max(c) from big where a > 39000 group by a % 4 order by 1

select count(*), sum(a), avg(b), min(c), max(length(d)) from big where a < 0

begin

delete from big where a <= 10000

update big set b = -1 where a <= 10010

select count(*), min(a), min(b) from big

rollback

select count(*), min(a), min(b) from big
