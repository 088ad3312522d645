begin;
alter table gm_users add column mail text unique;
create view gm_names as select name from gm_users;
commit;
