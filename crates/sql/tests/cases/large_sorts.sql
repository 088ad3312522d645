create table s (a int, b text, c numeric(10,2), d double precision, e bigint, f date)

insert into s select g, 'text ' || (g * 7919 % 1000), (g % 77) / 4.0, case when g % 5 = 0 then null else -g / 3.0 end, g::bigint * 1000003 % 65537, date '2020-01-01' + g % 900 from generate_series(1, 20000) g

set work_mem = '64kB'

explain select b, d, a from s order by b desc, d nulls first, a limit 3 offset 15000

select b, d, a from s order by b desc, d nulls first, a limit 3 offset 15000

select c, f, e, a from s order by c, f desc, a limit 3 offset 12345

select d, e from s order by d desc nulls last, e limit 3 offset 15998

select total_waits > 0 from v$system_event where event = 'direct path write temp'

set work_mem = '1GB'

select b, d, a from s order by b desc, d nulls first, a limit 3 offset 15000

select c, f, e, a from s order by c, f desc, a limit 3 offset 12345

select d, e from s order by d desc nulls last, e limit 3 offset 15998

set maintenance_work_mem = '64kB'

create unique index s_e on s (b, a)

create unique index s_f on s (b)

select a, b from s where b = 'text 17' order by a limit 3
