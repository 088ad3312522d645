create table kept_in_public (id int primary key, v text)

create view over_public as select v from kept_in_public

drop schema public

begin

drop schema public cascade

select count(*) from pg_namespace where nspname = 'public'

select coalesce(current_schema(), 'none')

create table nowhere (id int)

rollback

select count(*) from kept_in_public

drop schema public cascade

select * from kept_in_public

drop schema public

drop schema if exists public

create table nowhere (id int)

select count(*) from pg_class c where relkind in ('r', 'v', 'i', 'S') and not exists (select from pg_namespace n where n.oid = c.relnamespace)

create schema public

select obj_description(oid) is null from pg_namespace where nspname = 'public'

select count(*) from pg_namespace where nspname = 'public'

create table kept_in_public (id int primary key, v text)

insert into public.kept_in_public values (1, 'a')

select * from kept_in_public

select table_schema, table_name from information_schema.tables where table_name = 'kept_in_public'

select has_schema_privilege('pg_monitor', 'public', 'usage')

grant usage on schema public to public

select has_schema_privilege('pg_monitor', 'public', 'usage')

alter schema public rename to was_public

select * from was_public.kept_in_public

select * from kept_in_public

create schema public

create table kept_in_public (id int)

comment on schema public is 'ours'

select obj_description('public'::regnamespace)

drop schema was_public cascade

drop table kept_in_public

comment on schema public is 'standard public schema'

create role holder

create schema held authorization holder

create table held.t (id int)

drop owned by holder

drop owned by holder cascade

select count(*) from pg_namespace where nspname = 'held'

alter schema public owner to holder

select nspowner::regrole from pg_namespace where nspname = 'public'

drop owned by holder

select count(*) from pg_namespace where nspname = 'public'

drop role holder
