//! The databases of a lab: how they are started, asked, stopped and removed. Also the counters of
//! waits between two moments.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use postgres::{Client, Config, NoTls};
use seam::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::LabArgs;
use crate::control::Status;
use crate::{Failure, ports, user};

/// Exit code of a lab that was interrupted: that of shells for SIGINT.
const INTERRUPTED: i32 = 130;
/// The number of waits that are shown for each instance.
const TOP: usize = 6;

/// The place where a lab works. When it is dropped, what it has started and made goes, too.
pub struct Bench {
    dir: PathBuf,
    made: bool,
    keep: bool,
    port: Option<u16>,
    buffers: String,
    quiet: bool,
    started: Started,
    times: Times,
}

/// What went to what in the databases that were stopped.
type Times = Arc<Mutex<Accounted>>;

/// DB time of sessions of all instances, in microseconds.
#[derive(Clone, Copy, Default)]
pub struct Accounted {
    pub db_time: i64,
    pub processor: i64,
    pub waits: i64,
    pub runnable: i64,
    /// What is none of these.
    pub unaccounted: i64,
}

/// The databases that run. Locked while one is started, stopped or removed, and by a signal until
/// the end of the process. So each is stopped once, whoever comes first.
type Started = Arc<Mutex<Vec<PathBuf>>>;

/// A database with one or more instances.
pub struct Database {
    dir: PathBuf,
    port: u16,
    pub instances: u16,
    keep: bool,
    started: Started,
    times: Times,
}

impl Bench {
    pub fn open(args: &LabArgs) -> Result<Bench, Failure> {
        let temporary = || std::env::temp_dir().join(format!("braid-lab-{}", std::process::id()));
        let dir = args.data.clone().unwrap_or_else(temporary);
        let made = !dir.exists();
        let described = |e| Failure(format!("cannot create {}: {e}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(described)?;
        let bench = Bench {
            made,
            keep: args.keep,
            port: args.port,
            buffers: args.buffer_cache.clone(),
            quiet: args.json,
            dir,
            started: Started::default(),
            times: Times::default(),
        };
        bench.end_on_signals()?;
        Ok(bench)
    }

    /// Has Ctrl-C and the like stop the databases, remove them and end the process.
    fn end_on_signals(&self) -> Result<(), Failure> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let (started, keep) = (self.started.clone(), self.keep);
        let own = (self.made && !keep).then(|| self.dir.clone());
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                if signals.forever().next().is_none() {
                    return;
                }
                complain!("\nbraid: lab: interrupted; what it started is stopped");
                let started = started.lock();
                started.iter().for_each(|dir| stop(dir, keep));
                if let Some(dir) = own {
                    // What is left in the directory is not the lab's.
                    let _ = std::fs::remove_dir(dir);
                }
                std::process::exit(INTERRUPTED);
            })?;
        Ok(())
    }

    /// What the time of the databases that were stopped went to.
    pub fn accounted(&self) -> Accounted {
        *self.times.lock()
    }

    /// Tells the user what the lab is doing.
    pub fn step(&self, what: &str) {
        if !self.quiet {
            complain!("braid lab: {what}");
        }
    }

    /// Creates a database. `first` is its first port among those of the lab.
    pub fn database(&self, name: &str, instances: u16, first: u16) -> Result<Database, Failure> {
        let dir = self.free_directory(name)?;
        let db = self.prepared(dir, instances, first)?;
        let port = db.port;
        let mut started = self.started.lock();
        started.push(db.dir.clone());
        let up = braid(&[
            "up",
            "--detach",
            "--instances",
            &instances.to_string(),
            "--data",
            path(&db.dir)?,
            "--port",
            &port.to_string(),
            "--buffer-cache",
            &self.buffers,
        ]);
        // Unlocked before the database may be dropped.
        drop(started);
        up.map(|()| db)
    }

    /// Creates a database whose instances differ: each is started with settings of its own. They
    /// have no guard.
    pub fn database_of(
        &self,
        name: &str,
        first: u16,
        settings: &[&[&str]],
    ) -> Result<Database, Failure> {
        let dir = self.free_directory(name)?;
        let db = self.prepared(dir, settings.len() as u16, first)?;
        let mut started = self.started.lock();
        started.push(db.dir.clone());
        let up = self.start_each(&db, settings);
        // Unlocked before the database may be dropped.
        drop(started);
        up.map(|()| db)
    }

    fn start_each(&self, db: &Database, settings: &[&[&str]]) -> Result<(), Failure> {
        for (at, own) in settings.iter().enumerate() {
            let (number, port) = ((at + 1).to_string(), db.port.to_string());
            let mut args = match at {
                0 => vec!["up", "--detach"],
                _ => vec!["start", &number],
            };
            args.extend(["--data", path(&db.dir)?, "--port", &port]);
            args.extend(["--buffer-cache", &self.buffers]);
            for setting in *own {
                args.extend(["--set", setting]);
            }
            braid(&args)?;
        }
        Ok(())
    }

    /// A directory for a database that is not there yet.
    fn free_directory(&self, name: &str) -> Result<PathBuf, Failure> {
        let dir = self.dir.join(name);
        match dir.exists() {
            false => Ok(dir),
            true => Err(Failure(format!(
                "{} is there already: a lab begins with an empty directory",
                dir.display()
            ))),
        }
    }

    /// A database that is about to be started.
    fn prepared(&self, dir: PathBuf, instances: u16, first: u16) -> Result<Database, Failure> {
        let port = match self.port {
            Some(port) => port + first,
            None => ports::free(instances)?,
        };
        self.step(&format!(
            "starting {instances} instance(s) in {}",
            dir.display()
        ));
        Ok(Database {
            dir,
            port,
            instances,
            keep: self.keep,
            started: self.started.clone(),
            times: self.times.clone(),
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _no_signal = self.started.lock();
        if self.made && !self.keep {
            // What is left in the directory is not the lab's.
            let _ = std::fs::remove_dir(&self.dir);
        }
    }
}

impl Database {
    pub fn connect(&self, instance: u16) -> Result<Client, Failure> {
        let port = self.port + instance - 1;
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).dbname("braid");
        Ok(config.user(&user::superuser()).connect(NoTls)?)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn address(&self, instance: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port + instance - 1).into()
    }

    /// The process of an instance.
    pub fn pid(&self, instance: u16) -> Result<u32, Failure> {
        let all = Status::read_all(&self.dir)?;
        let found = all.into_iter().find(|s| s.instance == instance);
        let found = found.ok_or_else(|| Failure(format!("there is no instance {instance}")))?;
        Ok(found.pid)
    }

    pub fn run(&self, sql: &str) -> Result<(), Failure> {
        Ok(self.connect(1)?.batch_execute(sql)?)
    }

    /// The counters of all instances so far: what they waited for, sent and served.
    pub fn totals(&self) -> Result<Totals, Failure> {
        let mut c = self.connect(1)?;
        let mut totals = Totals::default();
        let waits = "select inst_id, event, wait_class, total_waits, time_waited_micro from gv$system_event where wait_class <> 'Idle'";
        for row in c.query(waits, &[])? {
            let (instance, event): (i32, String) = (row.get(0), row.get(1));
            let wait = Wait {
                class: row.get(2),
                waits: row.get(3),
                micro: row.get(4),
            };
            totals.waits.insert((instance, event), wait);
        }
        let transfers = "select object_name, from_instance, to_instance, current_blocks, cr_blocks, flush_waits, time_micro from gv$gc_transfers";
        for row in c.query(transfers, &[])? {
            let between: (String, i32, i32) = (row.get(0), row.get(1), row.get(2));
            let t = [row.get(3), row.get(4), row.get(5), row.get(6)];
            totals.transfers.insert(between, t);
        }
        for row in c.query("select name, value from gv$sysstat", &[])? {
            *totals.stats.entry(row.get(0)).or_default() += row.get::<_, i64>(1);
        }
        let parts = "select event, part, waits, time_waited_micro from gv$gc_latency";
        for row in c.query(parts, &[])? {
            let sum = totals.parts.entry((row.get(0), row.get(1))).or_default();
            sum.0 += row.get::<_, i64>(2);
            sum.1 += row.get::<_, i64>(3);
        }
        Ok(totals)
    }
}

impl Database {
    /// What the time of its sessions went to, over all instances.
    fn accounted(&self) -> Result<Accounted, Failure> {
        let sql = "select stat_name, sum(value)::bigint from gv$sys_time_model group by stat_name";
        let mut all = Accounted::default();
        for row in self.connect(1)?.query(sql, &[])? {
            let micros: i64 = row.get(1);
            match row.get(0) {
                "DB time" => all.db_time = micros,
                "CPU outside of waits" => all.processor = micros,
                "non-idle wait time" => all.waits = micros,
                "run queue time" => all.runnable = micros,
                "unaccounted time" => all.unaccounted = micros,
                _ => {}
            }
        }
        Ok(all)
    }
}

impl Accounted {
    fn add(&mut self, other: Accounted) {
        self.db_time += other.db_time;
        self.processor += other.processor;
        self.waits += other.waits;
        self.runnable += other.runnable;
        self.unaccounted += other.unaccounted;
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // One that could not be started has no time.
        if let Ok(accounted) = self.accounted() {
            self.times.lock().add(accounted);
        }
        let mut started = self.started.lock();
        started.retain(|dir| *dir != self.dir);
        stop(&self.dir, self.keep);
    }
}

/// Stops a database, and removes it unless it is to be kept.
fn stop(dir: &Path, keep: bool) {
    let stopped = path(dir).and_then(|dir| braid(&["down", "--data", dir]));
    if let Err(Failure(why)) = stopped {
        complain!("braid lab: {why}");
        return;
    }
    if !keep && let Err(e) = std::fs::remove_dir_all(dir) {
        complain!("braid lab: cannot remove {}: {e}", dir.display());
    }
}

fn path(dir: &Path) -> Result<&str, Failure> {
    let text = dir.to_str();
    text.ok_or_else(|| Failure(format!("{} is not UTF-8", dir.display())))
}

/// Runs this program. Its output is shown only if it fails.
fn braid(args: &[&str]) -> Result<(), Failure> {
    let done = Command::new(std::env::current_exe()?)
        .args(args)
        .stdin(Stdio::null())
        .output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = [&done.stdout[..], &done.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    Err(Failure(format!(
        "braid {}: {}",
        args.join(" "),
        said.trim()
    )))
}

#[derive(Clone, Default)]
pub struct Wait {
    pub class: String,
    pub waits: i64,
    pub micro: i64,
}

/// Counters of all instances since their start, or between two moments.
#[derive(Default)]
pub struct Totals {
    /// Waits by instance and event.
    pub waits: BTreeMap<(i32, String), Wait>,
    /// Transfers by object, sender and receiver: current blocks, copies, waits for a log flush,
    /// microseconds.
    pub transfers: BTreeMap<(String, i32, i32), [i64; 4]>,
    /// Statistics, summed over all instances.
    pub stats: BTreeMap<String, i64>,
    /// Waits for other instances, by event and part: their number and microseconds.
    pub parts: BTreeMap<(String, String), (i64, i64)>,
}

impl Totals {
    pub fn since(&self, before: &Totals) -> Totals {
        let mut out = Totals::default();
        for (key, now) in &self.waits {
            let was = before.waits.get(key).cloned().unwrap_or_default();
            let wait = Wait {
                class: now.class.clone(),
                waits: now.waits - was.waits,
                micro: now.micro - was.micro,
            };
            if wait.waits > 0 {
                out.waits.insert(key.clone(), wait);
            }
        }
        for (key, now) in &self.transfers {
            let was = before.transfers.get(key).copied().unwrap_or_default();
            let delta: [i64; 4] = std::array::from_fn(|i| now[i] - was[i]);
            if delta[0] + delta[1] > 0 {
                out.transfers.insert(key.clone(), delta);
            }
        }
        for (key, now) in &self.stats {
            let was = before.stats.get(key).copied().unwrap_or_default();
            out.stats.insert(key.clone(), now - was);
        }
        for (key, now) in &self.parts {
            let was = before.parts.get(key).copied().unwrap_or_default();
            if now.0 > was.0 {
                let delta = (now.0 - was.0, now.1 - was.1);
                out.parts.insert(key.clone(), delta);
            }
        }
        out
    }

    /// The time of a class of waits, in seconds.
    pub fn class_seconds(&self, class: &str) -> f64 {
        let of = self.waits.values().filter(|w| w.class == class);
        of.map(|w| w.micro).sum::<i64>() as f64 / 1e6
    }

    /// The number of waits of a class.
    pub fn class_waits(&self, class: &str) -> i64 {
        let of = self.waits.values().filter(|w| w.class == class);
        of.map(|w| w.waits).sum()
    }

    pub fn stat(&self, name: &str) -> i64 {
        self.stats.get(name).copied().unwrap_or_default()
    }

    /// The number of blocks that came from other instances.
    pub fn blocks(&self) -> i64 {
        self.transfers.values().map(|t| t[0] + t[1]).sum()
    }

    /// The object of which most blocks travelled.
    pub fn hot_object(&self) -> Option<(String, i64)> {
        let mut by_object: BTreeMap<&str, i64> = BTreeMap::new();
        for ((object, _, _), t) in &self.transfers {
            *by_object.entry(object).or_default() += t[0] + t[1];
        }
        let hot = by_object.into_iter().max_by_key(|(_, n)| *n);
        hot.map(|(object, n)| (object.to_string(), n))
    }

    /// The longest waits of each instance. `session_seconds` is the time that its sessions had.
    pub fn top_waits(&self, session_seconds: f64) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let instances: std::collections::BTreeSet<i32> =
            self.waits.keys().map(|(instance, _)| *instance).collect();
        for instance in instances {
            let of = self.waits.iter().filter(|((k, _), _)| *k == instance);
            let mut waits: Vec<_> = of.collect();
            waits.sort_by_key(|(_, w)| std::cmp::Reverse(w.micro));
            for ((_, event), w) in waits.into_iter().take(TOP) {
                let seconds = w.micro as f64 / 1e6;
                rows.push(vec![
                    instance.to_string(),
                    event.clone(),
                    w.waits.to_string(),
                    format!("{seconds:.3}"),
                    format!("{:.3}", w.micro as f64 / 1e3 / w.waits as f64),
                    format!("{:.1}", 100.0 * seconds / session_seconds.max(1e-9)),
                ]);
            }
        }
        rows
    }

    /// Blocks by object and direction, most first.
    pub fn hot_rows(&self) -> Vec<Vec<String>> {
        let mut all: Vec<_> = self.transfers.iter().collect();
        all.sort_by_key(|(_, t)| std::cmp::Reverse(t[0] + t[1]));
        let row = |((object, from, to), t): (&(String, i32, i32), &[i64; 4])| {
            let blocks = (t[0] + t[1]).max(1);
            vec![
                object.clone(),
                format!("{from} to {to}"),
                t[0].to_string(),
                t[1].to_string(),
                t[2].to_string(),
                format!("{:.3}", t[3] as f64 / 1e3 / blocks as f64),
            ]
        };
        all.into_iter().take(2 * TOP).map(row).collect()
    }

    /// Where the time of the waits for one event went: the parts, in milliseconds of an average
    /// wait.
    pub fn part_rows(&self, event: &str) -> Vec<Vec<String>> {
        let of = |part: &str| self.parts.get(&(event.to_string(), part.to_string()));
        let waits = of("total").map_or(0, |t| t.0).max(1);
        let parts = self.parts.iter().filter(|((e, _), _)| e == event);
        let row = |((_, part), sum): (&(String, String), &(i64, i64))| {
            vec![
                part.clone(),
                format!("{:.3}", sum.1 as f64 / 1e3 / waits as f64),
            ]
        };
        parts.map(row).collect()
    }
}

pub const TOP_COLUMNS: [&str; 6] = [
    "instance",
    "event",
    "waits",
    "time (s)",
    "average (ms)",
    "% of session time",
];
pub const HOT_COLUMNS: [&str; 6] = [
    "object",
    "from .. to",
    "current blocks",
    "copies",
    "log flushes",
    "average (ms)",
];

/// Runs work on several threads at once. Returns how long each took, in seconds.
pub fn side_by_side<W>(work: Vec<W>) -> Result<Vec<f64>, Failure>
where
    W: FnOnce() -> Result<(), Failure> + Send,
{
    std::thread::scope(|scope| {
        let timed = |w: W| {
            let began = Instant::now();
            w().map_err(|Failure(why)| why)?;
            Ok(began.elapsed().as_secs_f64())
        };
        let threads: Vec<_> = work
            .into_iter()
            .map(|w| scope.spawn(move || timed(w)))
            .collect();
        let mut times = Vec::new();
        for thread in threads {
            let done: Result<f64, String> = thread
                .join()
                .unwrap_or_else(|_| Err("a session of the lab broke an invariant".to_string()));
            times.push(done.map_err(Failure)?);
        }
        Ok(times)
    })
}

pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or_default()
}
