create table t (id int primary key, s text, a int, b int, active bool, d int unique deferrable, v varchar(10))

create unique index t_lower on t (lower(s))

create index t_sum on t ((a + b), id desc)

create unique index t_active on t (a) where active

create index t_part on t (b) where b > 2 and s is not null

create index t_upper on t (upper(v) text_pattern_ops)

insert into t select n, 'Name' || n, n, n % 7, n % 3 = 0, n, 'V' || n from generate_series(1, 200) n

explain select id from t where lower(s) = 'name17'

explain select id from t where lower(s) in ('name17', 'name18')

explain select id from t where s = 'name17'

explain select id from t where a + b = 20 order by id desc

explain select id from t where a + b between 20 and 25

explain select id from t where b + a = 20

explain select id from t where active and a = 9

explain select id from t where a = 9

explain select id from t where active is true and a = 9

explain select id from t where b = 5 and s > 'x'

explain select id from t where b = 5

explain select id from t where b = 2 and s > 'x'

explain select id from t where upper(v) like 'V1%'

explain select id from t order by lower(s) limit 3

explain select id from t where d = 5

explain select id from t where lower(s) = 'name1' or lower(s) = 'name2'

explain select count(*) from t x join t y on lower(x.s) = lower(y.s) where x.id = 5

explain update t set b = 0 where lower(s) = 'name17'

explain delete from t where active and a = 9

select id, s from t where lower(s) = 'name17'

select id from t where active and a = 9

select id from t where d = 5
