# DBD::Pg: placeholders, types, errors, savepoints, COPY, notifications, what DBI asks of the
# catalogs. foreign_key_info waits for what pg_depend says of constraints.
use strict; use warnings; use DBI;

# Says whether a step went right, and what it gave: dbi.expected has what PostgreSQL 15 gives.
sub ok { my ($right, $what, $gave) = @_; print $right ? 'ok' : 'FAIL', " $what ", $gave // '', "\n"; }

my $d=DBI->connect("dbi:Pg:host=$ENV{PGHOST};port=$ENV{PGPORT};dbname=$ENV{PGDATABASE}",$ENV{PGUSER},'',{RaiseError=>1,PrintError=>0,PrintWarn=>0,AutoCommit=>1,pg_enable_utf8=>1});
$d->do("drop table if exists pl_t; drop type if exists pl_mood; create type pl_mood as enum ('sad','ok')");
$d->do("create table pl_t (id serial primary key, t text unique, a int[], b bytea, m pl_mood, n numeric(8,2), f boolean, j jsonb)");
my $s=$d->prepare("insert into pl_t (t,a,b,m,n,f,j) values (?,?,?,?,?,?,?) returning id");
$s->bind_param(3,undef,{pg_type=>DBD::Pg::PG_BYTEA()});
$s->execute("é",[1,2],"\x00\xff",'ok','1.50',1,'{"a":[1]}');
ok($s->fetchrow_array==1,'returning');
ok($d->last_insert_id(undef,undef,'pl_t',undef)==1,'last_insert_id');
my $r=$d->selectrow_hashref("select * from pl_t where id=?",undef,1);
ok($r->{a}[1]==2 && $r->{b} eq "\x00\xff" && $r->{n} eq '1.50' && $r->{f},'types');
eval{$s->execute("é",[1],undef,'ok',1,1,'{}')};
ok($d->state eq '23505','error',$d->state);
ok($d->ping==1||$d->ping==3,'ping',$d->ping);
$d->begin_work;
$d->do("update pl_t set t='x'");
$d->pg_savepoint('p');
eval{$d->do("select 1/0")};
$d->pg_rollback_to('p');
$d->pg_release('p');
$d->commit;
ok($d->selectrow_array("select t from pl_t") eq 'x','savepoint');
$d->do("copy pl_t (t) from stdin");
$d->pg_putcopydata("l$_\n") for 1..50;
$d->pg_putcopyend; 
$d->do("copy (select t from pl_t order by id) to stdout"); my($l,$c)=('',0);
$c++ while $d->pg_getcopydata($l)>=0;
ok($c==51,'copy',$c);
ok(join(',',$d->primary_key(undef,'public','pl_t')) eq 'id','primary_key');
my $ci=$d->column_info(undef,'public','pl_t','%')->fetchall_arrayref({});
ok(1,'column_info',join ',',map{join '|',map{$_//'-'}@$_{qw(COLUMN_NAME TYPE_NAME COLUMN_SIZE NULLABLE COLUMN_DEF pg_type)}}@$ci);
ok(1,'enum_values',join ',',map{join '/',@{$_->{pg_enum_values}||[]}}@$ci);
my $ti=$d->table_info(undef,'public','pl_t','TABLE')->fetchall_arrayref({});
ok(@$ti==1,'table_info',$ti->[0]{TABLE_TYPE});
$d->do("create table pl_c (p int references pl_t)");
ok(1,'tables',join ',',sort grep{/pl_/}$d->tables(undef,'public','%','TABLE'));
$d->do("insert into pl_c values (1)");
$d->do("analyze pl_c");
my $si=$d->statistics_info(undef,'public','pl_c',0,0)->fetchall_arrayref({});
ok(1,'statistics_info',join ',',map{join '|',map{$_//'-'}@{$_}{qw(TABLE_NAME NON_UNIQUE INDEX_NAME TYPE ORDINAL_POSITION COLUMN_NAME ASC_OR_DESC CARDINALITY)}}@$si);
my $su=$d->statistics_info(undef,'public','pl_t',1,0)->fetchall_arrayref({});
ok(1,'statistics_info of keys',join ',',sort map{join '|',map{$_//'-'}@{$_}{qw(NON_UNIQUE INDEX_NAME TYPE ORDINAL_POSITION COLUMN_NAME ASC_OR_DESC)}}@$su);
ok(1,'type_info',scalar @{$d->type_info_all});
$d->do("listen pl");
$d->do("notify pl,'hi'");
my $no=$d->pg_notifies;
ok($no&&$no->[2] eq 'hi','notify');
my $q=$d->prepare("select pg_sleep(0.1)",{pg_async=>1}); $q->execute;
my $x=$q->pg_result;
ok($x==1,'async');
my $q3=$d->prepare("select :x::int + :y::int");
$q3->bind_param(':x',1);
$q3->bind_param(':y',2);
$q3->execute;
ok($q3->fetchrow_array==3,'named');
my $sc=$d->prepare("select id,t,n from pl_t where id=1");
$sc->execute;
ok(1,'describe',join ',',@{$sc->{NAME}},@{$sc->{pg_type}},map{$_//'-'}@{$sc->{PRECISION}},@{$sc->{NULLABLE}});
$d->do("drop table pl_c, pl_t; drop type pl_mood");
$d->disconnect;
