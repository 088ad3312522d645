create table t (a int)

create schema s

create table s.t (a int)

drop trigger if exists x on t

drop trigger if exists x on s.t

drop policy if exists x on s.t

drop rule if exists x on s.t

drop trigger x on s.t

drop schema s cascade

drop table t
