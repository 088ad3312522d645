<?php
// PDO and the functions pg_..: statements, types, COPY, notifications, metadata.
// pdo.expected has what PostgreSQL 15 gives.
function ok($r,$w,$x=''){echo ($r?"ok":"FAIL")." $w ".(is_string($x)?$x:json_encode($x))."\n";}
$p=new PDO("pgsql:host=".getenv('PGHOST').";port=".getenv('PGPORT').";dbname=".getenv('PGDATABASE'),getenv('PGUSER'),null,[PDO::ATTR_ERRMODE=>PDO::ERRMODE_EXCEPTION]);
$p->exec("drop table if exists php_t; create table php_t (id bigserial primary key, t varchar(20) unique, b bytea, f boolean, n numeric(8,2), j jsonb)");
foreach([false,true] as $e){ $p->setAttribute(PDO::ATTR_EMULATE_PREPARES,$e);
 $s=$p->prepare("insert into php_t (t,b,f,n,j) values (:t,:b,:f,:n,:j) returning id");
$s->bindValue(':t',"é$e");
$h=fopen('php://memory','w+'); fwrite($h,"\0\xff"); rewind($h);
$s->bindParam(':b',$h,PDO::PARAM_LOB);
$s->bindValue(':f',true,PDO::PARAM_BOOL);
$s->bindValue(':n','1.5');
$s->bindValue(':j','{"a":1}');
$s->execute();
ok($s->fetchColumn()>0,'insert');
 ok($p->lastInsertId()>0&&$p->lastInsertId('php_t_id_seq')>0,'lastInsertId');
 $r=$p->query("select * from php_t order by id desc limit 1")->fetch(PDO::FETCH_ASSOC);
ok($r['f']===true&&$r['n']==='1.50'&&stream_get_contents($r['b'])==="\0\xff",'types',array_diff_key($r,['b'=>1]));
 $s=$p->prepare("select count(*) from php_t where j ?? 'a' and id = any(?::int[])");
$s->execute(['{1,2,3}']);
ok(1,'question',$s->fetchColumn());
 try{$p->prepare("insert into php_t (t) values (?)")->execute(["é$e"]);
ok(0,'dup');}catch(PDOException $x){ok($x->errorInfo[0]==='23505','dup',$x->errorInfo[0]);}
}
$p->beginTransaction();
$p->exec("delete from php_t");
$p->rollBack();
$s=$p->prepare("select id from php_t order by id",[PDO::ATTR_CURSOR=>PDO::CURSOR_SCROLL]);
$s->execute();
$a=$s->fetch(PDO::FETCH_NUM,PDO::FETCH_ORI_LAST);
ok(1,'scroll',$a);
ok($p->pgsqlCopyFromArray('php_t',["100\tx\t\\N\tt\t1\t{}","101\ty\t\\N\tf\t2\t[]"]),'copy');
ok(count($p->pgsqlCopyToArray('php_t'))===4,'copy to');
$m=$p->query("select id,t from php_t")->getColumnMeta(1);
ok(1,'meta',array_intersect_key($m,['native_type'=>1,'table'=>1,'name'=>1,'len'=>1,'precision'=>1]));
$p->exec("listen ph");
$p->exec("notify ph,'hi'");
$n=$p->pgsqlGetNotify(PDO::FETCH_ASSOC,1000);
ok($n['payload']==='hi','notify');
ok(1,'version',explode(' ',$p->getAttribute(PDO::ATTR_SERVER_VERSION))[0]);
$c=pg_connect("host=".getenv('PGHOST')." port=".getenv('PGPORT')." dbname=".getenv('PGDATABASE')." user=".getenv('PGUSER'));
pg_prepare($c,'q','select $1::int+1 as n');
ok(pg_fetch_result(pg_execute($c,'q',[1]),0,'n')==='2','pg_prepare');
ok(1,'meta_data',pg_meta_data($c,'php_t',true));
ok(pg_insert($c,'php_t',['t'=>'pg','n'=>'3'])!==false,'pg_insert');
ok(1,'pg_select',pg_select($c,'php_t',['t'=>'pg'])[0]['n']);
ok(pg_update($c,'php_t',['n'=>'4'],['t'=>'pg']),'pg_update');
ok(pg_delete($c,'php_t',['t'=>'pg']),'pg_delete');
pg_send_query($c,"select 1; select 2");
$k=0;while($r=pg_get_result($c)){$k++;}ok($k===2,'async');
$r=pg_query($c,"select id,t,n from php_t limit 1");
ok(1,'fields',[pg_field_type($r,0),pg_field_type($r,1),pg_field_prtlen($r,0),pg_field_size($r,1),pg_field_table($r,0)]);
ok(pg_copy_from($c,'php_t',["300\tz\t\\N\tt\t1\t{}\n"]),'pg_copy_from');
pg_query($c,"begin");
ok(pg_transaction_status($c)===PGSQL_TRANSACTION_INTRANS,'status');
pg_query($c,"commit");
$p->exec("drop table php_t");
