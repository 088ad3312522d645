# ruby-pg: maps of types, prepared statements, COPY, errors, single rows, pipeline, notifications.
# pg.expected has what PostgreSQL 15 gives.
require 'pg'; require 'json'
def ok(r,w,x=nil) puts "#{r ? 'ok':'FAIL'} #{w} #{x.nil? ? '' : x.to_json}" end
c=PG.connect(host: ENV['PGHOST'],port: ENV['PGPORT'],dbname: ENV['PGDATABASE'],user: ENV['PGUSER'])
c.type_map_for_results=PG::BasicTypeMapForResults.new(c)
c.type_map_for_queries=PG::BasicTypeMapForQueries.new(c) 
c.exec("drop table if exists rb_t; create table rb_t (id serial primary key, t text, a int[], b bytea, n numeric, ts timestamptz, f bool, j jsonb)")
r=c.exec_params("insert into rb_t (t,a,n,ts,f) values ($1,$2,$3,$4,$5) returning *",["é",[1,2],1.5,Time.at(0),true])
ok(r[0]['a']==[1,2] && r[0]['ts']==Time.at(0) && r[0]['f']==true,'types',r[0]['n'].to_s)
c.prepare('p','select $1::int+1 as n')
ok(c.exec_prepared('p',[4])[0]['n']==5,'prepared')
d=c.describe_prepared('p')
ok(1,'describe',[d.nparams,d.paramtype(0),d.fields])
c.copy_data("copy rb_t (t) from stdin"){100.times{|i| c.put_copy_data("x#{i}\n")}}
n=0
c.copy_data("copy rb_t to stdout"){while c.get_copy_data;n+=1;end}
ok(n==101,'copy')
e=PG::TextEncoder::CopyRow.new
c.copy_data("copy rb_t (t,n) from stdin",e){c.put_copy_data ['q','2']}
begin
c.exec("insert into rb_t (id) values (1)")
ok(false,'dup'); rescue PG::UniqueViolation=>x
ok(true,'dup',[x.result.error_field(PG::PG_DIAG_CONSTRAINT_NAME),x.result.error_field(PG::PG_DIAG_TABLE_NAME)]); end
c.transaction{|t| t.exec("update rb_t set t='z'")}
begin
c.transaction{|t| t.exec("delete from rb_t"); raise 'x'}; rescue; end
ok(c.exec("select count(*) n from rb_t")[0]['n']==102,'rollback')
c.send_query("select * from rb_t")
c.set_single_row_mode
n=0; while r=c.get_result; r.check; n+=r.ntuples; end
ok(n==102,'single row')
c.exec("listen rb")
c.exec("notify rb,'hi'")
g=nil
c.wait_for_notify(2){|ch,pid,pl| g=pl}
ok(g=='hi','notify')
c.enter_pipeline_mode
c.send_query_params("select 1",[])
c.send_query_params("select 2",[])
c.pipeline_sync
x=[]
2.times{x<<c.get_result.values
c.get_result}
s=c.get_result
ok(s.result_status==PG::PGRES_PIPELINE_SYNC,'pipeline',x)
c.exit_pipeline_mode
t=Thread.new{sleep 0.2
c.cancel}; begin
c.exec("select pg_sleep(5)")
ok(false,'cancel'); rescue PG::QueryCanceled
ok(true,'cancel'); end
ok(1,'quote',[c.escape_string("a'b"),c.quote_ident('A b'),c.server_version/10000,c.parameter_status('TimeZone')!=nil])
c.exec("drop table rb_t")
