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

select id from job union select id from owner for update

select j.id from job j left join owner o on o.id = j.owner for update

select j.id from job j left join owner o on o.id = j.owner order by j.id desc for update of j

begin read only; select id from job for update

rollback

insert into owner select id + 100, 'job' from job order by rank limit 2 for update; select * from owner order by id
