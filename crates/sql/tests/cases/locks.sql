create table owner (id int primary key, name text); create table job (id int primary key, rank int, owner int); create index job_owner on job (owner)

insert into owner values (7, 'x'), (8, 'y'); insert into job values (1, 40, 7), (2, 30, 7), (3, 20, 8), (4, 10, 8)

select j.id, j.rank from owner o join job j on j.owner = o.id where o.id = 7 order by j.rank

explain select id from job where rank > 5 order by rank limit 2 for update

explain select j.id from owner o join job j on j.owner = o.id where o.id = 7 order by j.rank limit 1 for update of j skip locked

explain select id from job where owner = 7 limit 1 for share

select j.id from owner o, job j where j.owner = o.id for update of o, j nowait

select * from generate_series(1, 2) for update

select id from job for update of owner

select count(*) from job for update

select owner from job group by owner for share

select owner from job group by owner for key share

select distinct owner from job for no key update

select id from job for key share of owner

select id from job union select id from owner for update

select j.id from job j left join owner o on o.id = j.owner for update

select j.id from job j left join owner o on o.id = j.owner order by j.id desc for update of j

begin read only; select id from job for update

rollback

insert into owner select id + 100, 'job' from job order by rank limit 2 for update; select * from owner order by id

-- Rows that the general lane finds.
create table fa (id int primary key, v text)

create table fb (id int primary key, fa_id int)

insert into fa values (1, 'x'), (2, 'y'), (3, 'z')

insert into fb values (10, 1), (20, 2), (30, 2)

select *, initcap(v) as w from fa join fb on fb.fa_id = fa.id order by fb.id desc limit 2 for update

select fa.*, fb.id from fa natural join (values (2), (3)) q (id) left join fb on fb.fa_id = fa.id order by fb.id for update of fa

select id from fa where v > (select min(v) from fa) order by v desc offset 1 for share

select initcap(v) from fa limit 0 for update

explain select initcap(v) from fa where id = 2 for update

select initcap(v) from fa, (select 1) s for update

select initcap(v) from fa, (select 1) s for update of s

select relname from pg_class where relname = 'fa' for update

select initcap(v) from fa limit -1 for update

select id from fa order by id offset 1 rows fetch first 1 row only for update

select initcap(v) from fa order by id fetch next 2 rows only for update

select id from fa order by id limit 1 fetch first 1 row only

select id from fa order by id fetch first 1 row with ties

select s.id, fb.id from (select id, v from fa where id < 3) s join fb on fb.fa_id = s.id order by 2 for update

explain select s.id, fb.id from (select id, v from fa where id < 3) s join fb on fb.fa_id = s.id order by 2 for update of s

select * from (select count(*) from fa) s for update

select fa.id from fa left join (select * from fb) s on s.fa_id = fa.id for update

begin; declare q cursor for select initcap(v), id from fa order by id for update; fetch 2 from q

fetch all from q

declare h cursor with hold for select id from fa for update

rollback

begin read only; select initcap(v) from fa for update

rollback

-- More than memory may hold: refused, or kept in a file.
set work_mem = '64kB'; insert into fa select g, repeat('v', 500) from generate_series(100, 2500) g

select count(*) from (select id, v from fa where id > 3 for update) s

declare h cursor with hold for select length(v), id from fa order by id desc

fetch 2 from h

select sum(length(v)) from (select id, v from fa where id between 100 and 900 for update) s

update fa set v = initcap(v) from (select 3 as least) u where id > least and id < 105 returning id, left(v, 3)
