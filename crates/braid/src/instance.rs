//! `braid instance`: one instance in the foreground, from taking its port to a clean stop.

use std::fs::OpenOptions;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use engine::Engine;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use server::{Bound, ServerConfig};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;
use crate::cli::InstanceArgs;
use crate::control::{Recovered, State, Status};
use crate::progress::Progress;
use crate::settings;

/// Part of the line that says that clients can connect; `up --detach` waits for it.
pub const OPEN_LINE: &str = "is open";
/// Part of the last line that is said of a start.
pub const LAST_LINE: &str = "stop with";
/// How often the status file's SCN is brought up to date.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

pub fn run(args: &InstanceArgs) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let asked = Asked::listen()?;
    if let Some(parent) = args.parent {
        end_with_parent(parent)?;
    }
    raise_file_limit();
    let dir = args.settings.data.data.clone();
    let params = Arc::new(settings::parameters(&args.settings, args.instance)?);
    // Every thread that is started from here on inherits it.
    let cpus = settings::instance_cpus(&params)?;
    if !cpus.is_empty() {
        wait::priority::bind(&cpus).map_err(|e| Failure(format!("instance_cpus {cpus:?}: {e}")))?;
    }
    wait::set_enabled(params.is_on("timed_statistics"));
    let server_config = server_config(&params)?;
    let listen = server_config.address.ip();
    let config = settings::engine_config(&params, &dir, args.instance, listen)?;
    warn_of_trust(&server_config);
    let bound = Bound::bind(server_config)?;

    let name = format!("braid: instance {}", args.instance);
    let progress = Progress::until(&name, asked.is_asked.clone());
    if !engine::exists(&dir) {
        say!("braid: creating a database in {}", dir.display());
        std::fs::create_dir_all(&dir)
            .map_err(|e| Failure(format!("cannot create {}: {e}", dir.display())))?;
        Engine::create(&config, &progress)?;
        settings::write_template(&dir)
            .map_err(|e| Failure(format!("cannot write the parameter file: {e}")))?;
    }
    let engine = match Engine::open(config, &progress) {
        Err(e) if asked.is_asked.load(SeqCst) => {
            say!("{name}: stopped before it was open: {e}");
            return Ok(ExitCode::SUCCESS);
        }
        opened => opened?,
    };
    // Only now is the directory known to be this process's own.
    let mut status = Status::of_this_process(args.instance, bound.address())?;
    status.recovered = engine.recovery().map(|r| Recovered {
        redo_bytes: r.redo_bytes,
        records: r.records,
        blocks: r.blocks,
        transactions_rolled_back: r.transactions,
        elapsed_ms: r.elapsed_ms,
    });
    status.incarnation = engine.incarnation();
    status.epoch = engine.epoch();
    status.write(&dir)?;
    let database = sql::Database::open(engine.clone(), params)?;
    let server = bound.serve(database);
    status.state = State::Open;
    status.scn = engine.scn().0;
    status.write(&dir)?;
    announce(&name, &status, started, args);
    if let Some(log) = &args.detach_to {
        leave_terminal(log)?;
    }

    wait_for_stop(&asked.told, &mut status, &engine, &dir)?;

    say!("{name}: stopping");
    status.state = State::Stopping;
    status.write(&dir)?;
    if !server.stop() {
        say!("{name}: some sessions did not end in time; their transactions are rolled back");
    }
    engine.stop(&Progress::new(&name))?;
    status.state = State::Stopped;
    status.scn = engine.scn().0;
    status.write(&dir)?;
    say!("{name}: stopped");
    Ok(ExitCode::SUCCESS)
}

fn server_config(params: &sql::params::Instance) -> Result<ServerConfig, Failure> {
    let address = params.text("listen_addresses");
    let ip: IpAddr = match address.as_str() {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        _ => address
            .parse()
            .map_err(|e| Failure(format!("listen_addresses \"{address}\": {e}")))?,
    };
    Ok(ServerConfig {
        address: SocketAddr::new(ip, params.int("port") as u16),
        trusted: settings::trusted_clients(params)?,
        max_sessions: params.int("max_sessions") as usize,
        startup_timeout: Duration::from_secs(params.int("startup_timeout") as u64),
        client_poll: Duration::from_micros(params.int("client_poll") as u64),
    })
}

/// Who opens the database to a network is to know what that means.
fn warn_of_trust(config: &ServerConfig) {
    if !config.address.ip().is_loopback() {
        complain!(
            "braid: clients in trusted_clients are let in as whom they say they are, without a password, and what they send and get can be read on the network"
        );
    }
}

/// Signals that ask for a clean stop.
struct Asked {
    /// For a start, which waits for others and not for this.
    is_asked: Arc<AtomicBool>,
    /// For the main thread of an open instance.
    told: Receiver<()>,
}

impl Asked {
    fn listen() -> Result<Asked, Failure> {
        let (sender, told) = std::sync::mpsc::channel();
        let is_asked = Arc::new(AtomicBool::new(false));
        let of_thread = is_asked.clone();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for _ in signals.forever() {
                    of_thread.store(true, SeqCst);
                    // The main thread is gone only when the process is.
                    let _ = sender.send(());
                }
            })?;
        Ok(Asked { is_asked, told })
    }
}

/// The instance of a `braid up` that was killed stops cleanly instead of staying behind, as does the `braid up` of a
/// demo. `parent` is the process whose end that is.
pub fn end_with_parent(parent: u32) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended before the call.
    let alive = rustix::process::getppid() == Pid::from_raw(parent as i32);
    if alive {
        Ok(())
    } else {
        Err(Failure(
            "the process that started this one has ended".into(),
        ))
    }
}

/// A descriptor per client and per file: take as many as we are allowed.
fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(e) = rustix::process::setrlimit(Resource::Nofile, raised) {
        complain!(
            "braid: the limit of open files stays at {:?}: {e}",
            limit.current
        );
    }
}

/// So many of something.
pub fn counted(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

fn announce(name: &str, status: &Status, started: Instant, args: &InstanceArgs) {
    if let Some(r) = &status.recovered {
        say!(
            "{name}: recovered {} ({}) into {}, {} to roll back, in {} ms",
            counted(r.records, "redo record"),
            counted(r.redo_bytes, "byte"),
            counted(r.blocks, "block"),
            counted(r.transactions_rolled_back, "transaction"),
            r.elapsed_ms
        );
    }
    say!(
        "{name} {OPEN_LINE} after {:.1} s, SCN {}",
        started.elapsed().as_secs_f64(),
        status.scn
    );
    say!(
        "{name}: connect with  psql postgresql://{}/braid",
        status.address
    );
    let stop = if args.detach_to.is_some() {
        ""
    } else {
        "Ctrl-C or "
    };
    say!(
        "{name}: {LAST_LINE}  {stop}braid down --data {}",
        args.settings.data.data.display()
    );
}

/// Gives up the terminal: its own session, output to a file. The pipe to `up` closes, which ends its wait.
pub fn leave_terminal(log: &Path) -> Result<(), Failure> {
    let file = OpenOptions::new().create(true).append(true).open(log);
    let file = file.map_err(|e| Failure(format!("cannot write {}: {e}", log.display())))?;
    // Fails only for the leader of a process group, which a child of `up` is not.
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdout(&file)?;
    rustix::stdio::dup2_stderr(&file)?;
    Ok(())
}

/// Waits for a signal, keeping the SCN in the status file up to date.
fn wait_for_stop(
    asked: &Receiver<()>,
    status: &mut Status,
    engine: &Engine,
    dir: &Path,
) -> Result<(), Failure> {
    loop {
        match asked.recv_timeout(STATUS_INTERVAL) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let now = (engine.scn().0, engine.epoch());
                if now != (status.scn, status.epoch) {
                    (status.scn, status.epoch) = now;
                    // A full disk must not stop an instance; the file is brought up to date later.
                    if let Err(Failure(message)) = status.write(dir) {
                        complain!("braid: {message}");
                    }
                }
            }
        }
    }
}
