create table p (c char(5), n int, primary key (c, n)); create index p_down on p (n, c desc); create table q (k char(8) unique, v varchar(8), t text)

insert into p values ('ab', 1), ('ab ', 2), ('abc', 3), ('b', 4), ('', 5), (E'a\t', 6), ('äb', 7); insert into q values ('ab', 'ab   ', 'ab'), ('abc  ', 'abc', 'abc '), ('zz', 'b', ''), (null, '', 'b')

explain select n from p where c = 'ab '

select c || '|', n from p where c = 'ab ' order by n

select n from p where c = 'ab'::text; select n from p where c = 'ab '::text; select n from p where c = 'ab'::varchar; select n from p where c = 'ab '::varchar order by n; select n from p where c = 'ab '::char(3) order by n; select n from p where c = null

explain select n from p where c > 'ab' and c <= 'b   '

select n from p where c > 'ab' and c <= 'b   ' order by n; select n from p where c >= 'ab ' and c < 'abc ' order by n; select n from p where c < 'ab  '::text order by n; select n from p where c <= 'ab  '::text order by n; select n from p where c > 'ab  '::text order by n; select n from p where c >= 'ab  '::text order by n

select n from p where c between '' and 'ab' order by n

explain select n from p where c in ('b', 'ab ', 'nope')

select n from p where c in ('b', 'ab ', 'nope') order by n; select n from p where c in ('b', 'ab '::text) order by n; select n from p where c not in ('b', 'ab ') order by n

select n from p where c = any ('{b,"ab "}') order by n

explain select n from p where n = 2 and c <= 'abc' order by c desc

prepare s as select n from p where c = $1 and n > $2 order by n; execute s ('ab', 0); execute s ('ab     ', 1); execute s ('abcdefgh', 0); execute s (null, 0)

explain select p.n from q join p on p.c = q.k where q.v = 'abc'

select p.n, q.v from q join p on p.c = q.k order by n; select p.n from q join p on p.c = q.v order by n; select p.n from q join p on p.c = q.t order by n

select p.n from q, p where q.k = p.c group by p.n order by p.n; select p.n, count(*) from q, p where q.v = p.c group by p.n order by p.n; select distinct n from p where c = 'ab ' order by n; select distinct n from p where c in ('ab ', 'b') order by n; select distinct n from p where c = 'ab '::text order by n; select distinct n from p where c between 'ab' and 'b' order by n

select 'ab'::char(4) = 'ab '::varchar, 'ab '::varchar = 'ab'::char(4), 'ab'::char(4) = 'ab '::text, 'ab' in ('ab '::char(4)), 'ab'::char(4) in ('ab ', 'c')

update p set n = n + 10 where c = 'ab'; delete from p where c in ('ab', 'abc') and n > 11; select n from p order by c, n

update p set n = 100 from q where q.k = p.c and q.v = 'abc'; delete from p using q where q.v = p.c and q.t = 'ab'; select c, n from p order by c, n

insert into q values ('ab      ', 'x', 'x')

select * from p where c like 'ab%' order by n; select n from p where c like 'ab' order by n; select n from p where c like 'b    ' order by n
