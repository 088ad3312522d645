-- Aggregates over a large table are computed over column batches, with the answers and columns of a small one.
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

-- Averages, the select list, HAVING and ORDER BY are made of the groups row by row: digits and blanks are as in a small table.
create table wide (id bigint primary key, k char(4), n numeric(12,2), m numeric, c int, ts timestamp, pad text)

insert into wide select g, chr(97 + cast(g % 3 as int)), g / 8.0, g / 10.0, g % 7, cast(date '2026-01-01' + g % 300 as timestamp), repeat('x', 300) from generate_series(1, 40000) g

explain select k, avg(n) from wide group by k having count(*) > 5 order by 2 desc limit 2

select k, k || '|' as shown, avg(n), avg(c), sum(id), avg(id) * 1.5, count(m) from wide group by k having count(*) > 5 order by 3 desc limit 2

select max(k) || '|', max(n * (1 - n)), sum(n * 1.5), min(ts), sum(case when c = 9 then n end) from wide

-- Numerics with digits of their own, and strings that lose their padding, are aggregated row by row.
explain select sum(m) from wide

select sum(m), max(n / 4), min(m), avg(m) from wide where c < 3

explain select max(coalesce(k, 'none')) from wide

-- What is an error, or has more digits than a batch has, is computed row by row.
explain select count(*) from wide where c <> 0 and 100 / c > 20

select count(*), max(100 / nullif(c, 0)) from wide where c <> 0 and 100 / c > 20

select count(*) from wide where 100 / c > 20

select sum(n * n * n * n * n * n * n) from wide

update wide set n = 'NaN' where id = 77

select max(n), count(n), sum(n) from wide

begin

declare groups cursor for select k, count(*) from wide group by k order by k

fetch 1 from groups

delete from wide where id > 100

fetch 5 from groups

select k, count(*) from wide group by k order by k

rollback

explain analyze select c, count(*) from wide group by c order by c limit 1
