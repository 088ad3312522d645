//! The demo's first and last steps: two instances over one directory, a row that goes from one to
//! the other, a clean stop.

use super::Demo;
use super::cluster::INSTANCES;
use super::session::Answer;
use crate::Failure;

/// Starts both instances. Checks that one of them names both.
pub fn start(demo: &mut Demo) -> Result<(), Failure> {
    demo.stage.step(
        "Start two instances of one database",
        "An instance is a server process with a cache, a redo log (its write-ahead log) and a port \
         of its own. Both instances open the same files. Neither is a primary or a replica, and no \
         row belongs to one of them. The query asks gv$instance, which has a row for each instance. \
         Braid has some 25 such views of its own state: a v$ view shows what the instance that is \
         asked knows, and the gv$ view of the same name shows the rows of all instances.",
    );
    let up = format!("braid {}", demo.cluster.up_arguments().join(" "));
    // The command is too long for a line. A shell takes it in this form.
    demo.stage
        .typed("$", &up.replacen(" --port", " \\\n    --port", 1));
    let began = std::time::Instant::now();
    let all = demo.cluster.start()?;
    let seconds = began.elapsed().as_secs_f64();
    let mut one = demo.cluster.session(1)?;
    let sql = "select instance_number, instance_name, spid as process, status\n  \
                 from gv$instance order by instance_number";
    let found = demo.show(&mut one, sql)?;
    let pids: Vec<i64> = all.iter().map(|s| i64::from(s.pid)).collect();
    let told = found.numbers("process")?;
    demo.claims.hold(told == pids, || {
        format!("the processes are {pids:?}, and gv$instance has {told:?}")
    })?;
    let ports = (1..=INSTANCES).map(|k| demo.cluster.port(k));
    let ports: Vec<String> = ports.map(|p| p.to_string()).collect();
    demo.stage.notice(&format!(
        "two processes over one directory, {seconds:.1} s after the command, which also created \
         the database. They listen on ports {}. Instance 1 was asked, and named both.",
        ports.join(" and ")
    ));
    Ok(())
}

/// The number of blocks in all rows of `gv$gc_transfers` for this direction.
fn blocks(found: &Answer, from: i64, to: i64) -> Result<i64, Failure> {
    let mut sum = 0;
    for row in 0..found.rows.len() {
        let between = (
            found.number(row, "from_instance")?,
            found.number(row, "to_instance")?,
        );
        if between == (from, to) {
            sum += found.number(row, "current_blocks")? + found.number(row, "cr_blocks")?;
        }
    }
    Ok(sum)
}

/// One instance commits, and the other reads that at once and changes it.
pub fn write_and_read(demo: &mut Demo) -> Result<(), Failure> {
    demo.stage.step(
        "Write on one instance, read on the other",
        "Each statement below commits by itself. It is ordinary SQL, sent by PostgreSQL's protocol. \
         The last query asks gv$gc_transfers, which counts the blocks that went from one instance's \
         cache to another's, by table (gc stands for global cache: the caches of all instances, \
         kept coherent).",
    );
    let (mut one, mut two) = (demo.cluster.session(1)?, demo.cluster.session(2)?);
    demo.do_it(
        &mut one,
        "create table account (id int primary key, owner text not null, balance int not null)",
    )?;
    demo.show(
        &mut one,
        "insert into account values (1, 'ann', 100), (2, 'bob', 100)",
    )?;
    let all = "select id, owner, balance from account order by id";
    let reads = format!(
        "select value from v$sesstat where name = 'physical reads' and sid = {}",
        two.sid
    );
    let before = two.ask(&reads)?.number(0, "value")?;
    let seen = demo.show(&mut two, all)?;
    demo.claims
        .hold(seen.numbers("balance")? == [100, 100], || {
            format!("instance 2 reads {:?}", seen.rows)
        })?;
    demo.show(
        &mut two,
        "update account set balance = balance + 1 where id = 2",
    )?;
    let from_disk = two.ask(&reads)?.number(0, "value")? - before;
    let seen = demo.show(&mut one, all)?;
    demo.claims
        .hold(seen.numbers("balance")? == [100, 101], || {
            format!("instance 1 reads {:?}", seen.rows)
        })?;
    let transfers = demo.show(
        &mut one,
        "select object_name, from_instance, to_instance, current_blocks, cr_blocks\n  \
           from gv$gc_transfers where object_name = 'account' order by from_instance",
    )?;
    for (from, to) in [(1, 2), (2, 1)] {
        let came = blocks(&transfers, from, to)?;
        demo.claims.hold(came > 0, || {
            format!("no block of the table came from instance {from} to instance {to}")
        })?;
    }
    demo.claims.hold(from_disk == 0, || {
        format!("instance 2 read {from_disk} blocks from the disk")
    })?;
    demo.stage.notice(
        "each instance sees the other's commit in its next statement. The block (8 KiB of the \
         table) went from one cache to the other: instance 2 read nothing from the disk. A current \
         block is the newest version, which may be changed. A cr (consistent-read) block is a copy \
         to read from.",
    );
    Ok(())
}

/// Stops both instances, and reads every block of the stopped database.
pub fn stop_and_verify(demo: &mut Demo) -> Result<(), Failure> {
    demo.stage.step(
        "Stop both instances and verify the files",
        "braid verify reads every block of a stopped database, checks its checksum, and compares \
         every index with its table.",
    );
    let data = demo.cluster.dir().display().to_string();
    demo.stage.typed("$", &format!("braid down --data {data}"));
    let said = demo.cluster.stop()?;
    said.lines.iter().for_each(|line| demo.stage.line(line));
    demo.claims.hold(said.status.success(), || {
        format!("braid down ended: {}", said.status)
    })?;
    for k in 1..=INSTANCES {
        let status = demo.cluster.status(k)?;
        demo.claims
            .hold(!status.is_running(), || format!("instance {k} still runs"))?;
    }
    demo.stage
        .typed("$", &format!("braid verify --data {data}"));
    let said = demo.cluster.run(&["verify", "--data", &data])?;
    said.lines.iter().for_each(|line| demo.stage.line(line));
    demo.claims.hold(said.status.success(), || {
        format!(
            "braid verify ended: {}: {}",
            said.status,
            said.lines.join("; ")
        )
    })?;
    demo.stage.notice(
        "the database is sound after the kill: the checksum of every block is right, and every \
         index agrees with its table.",
    );
    Ok(())
}
