//! `braid instance`: one instance in the foreground, from taking its port to a clean stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use console::Console;
use engine::Engine;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use server::Bound;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;
use crate::cli::InstanceArgs;
use crate::control::{Recovered, State, Status};
use crate::progress::Progress;
use crate::report::{Event, Origin};
use crate::{advice, encryption, log, metrics, outlet, ports, settings, start};

/// How often the SCN in the status file is brought up to date, and changed parameters are looked
/// for.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

pub fn run(args: &InstanceArgs) -> Result<ExitCode, Failure> {
    if args.parent.is_some() || args.background {
        outlet::report_to_parent()?;
    }
    let process = Process {
        number: args.instance,
        data: args.settings.data.data.clone(),
        has_parent: args.parent.is_some() || args.background,
    };
    match process.run(args) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The failure is reported here, where the log and the parent are known.
        Err(Failure(why)) => {
            process.tell(Event::Failed { why });
            Ok(ExitCode::FAILURE)
        }
    }
}

/// This process, which runs one instance.
struct Process {
    number: u16,
    data: PathBuf,
    has_parent: bool,
}

impl Process {
    fn tell(&self, event: Event) {
        log::tell(Origin::Instance(self.number), event);
    }

    fn open_log_file(&self, limits: log::Limits) -> Result<(), Failure> {
        let path = log::path(&self.data, Origin::Instance(self.number));
        log::open_file(&path, limits, self.has_parent)
    }

    fn run(&self, args: &InstanceArgs) -> Result<(), Failure> {
        let started = Instant::now();
        let asked = Asked::listen()?;
        if let Some(parent) = args.parent {
            end_with_parent(parent)?;
        }
        let dir = &self.data;
        let params = Arc::new(settings::parameters(&args.settings, self.number)?);
        let log_settings = settings::log(&params);
        log::start(Origin::Instance(self.number), log_settings.level)?;
        if dir.exists() {
            if !engine::exists(dir) {
                // Nothing is written into a directory of something else, not even the log.
                advice::check_directory(dir)?;
            }
            self.open_log_file(log_settings.limits)?;
        }
        raise_file_limit();
        forbid_core_files();
        // Every thread that is started from here on inherits the CPUs.
        let by_setting = |e| advice::of_setting(e, dir);
        let cpus = settings::instance_cpus(&params).map_err(by_setting)?;
        if !cpus.is_empty() {
            wait::priority::bind(&cpus)
                .map_err(|e| Failure(format!("instance_cpus {cpus:?}: {e}")))?;
        }
        wait::set_enabled(params.is_on("timed_statistics"));
        let server_config = start::server_config(&params).map_err(by_setting)?;
        let listen = server_config.address.ip();
        let config =
            settings::engine_config(&params, dir, self.number, listen).map_err(by_setting)?;
        start::check_superuser(&params).map_err(by_setting)?;
        params.check_starts(start::check(dir, self.number));
        let bound = Bound::bind(server_config).map_err(advice::of_bind)?;
        if let Some(address) = config.interconnect {
            ports::refuse_taken_by("--interconnect-port", address)?;
        }
        let encrypt = || -> Result<(), Failure> {
            let tls = encryption::certificate(&params, dir, self.number, listen);
            if let Some(tls) = tls.map_err(by_setting)? {
                bound.encrypt(tls);
            }
            Ok(())
        };

        let progress = Progress::of_instance(self.number, asked.is_asked.clone());
        let is_new = !engine::exists(dir);
        if is_new {
            self.create(&config, &progress, log_settings.limits)?;
        }
        let progress = match is_new {
            true => progress.of_new_database(),
            false => progress,
        };
        // Clients that come while it opens are told so, encrypted if they want it.
        encrypt()?;
        let engine = match Engine::open(config, &progress) {
            Err(e) if asked.is_asked.load(SeqCst) => {
                let why = e.to_string();
                self.tell(Event::CalledOff { why });
                return Ok(());
            }
            opened => opened.map_err(|e| advice::of_engine(e, dir))?,
        };
        // From here on the directory is known to be this process's own.
        let mut status = self.status(&engine, bound.address())?;
        status.write(dir)?;
        let database = sql::Database::open(engine.clone(), params.clone())?;
        if let Some((name, false)) = database.first_superuser().filter(|_| is_new) {
            self.tell(Event::Superuser { name });
        }
        let autoanalyze = sql::Autoanalyze::start(&database)
            .map_err(|e| Failure(format!("cannot start the thread abp0: {e}")))?;
        let snapshots = sql::Snapshots::start(&database)
            .map_err(|e| Failure(format!("cannot start the thread m000: {e}")))?;
        if let Some(address) = settings::metrics(&params, self.number).map_err(by_setting)? {
            let bound = metrics::serve(address, self.number)
                .map_err(|e| Failure(format!("metrics_port: cannot listen on {address}: {e}")))?;
            tracing::info!("metrics are at http://{bound}/metrics");
        }
        let server = bound.serve(database);
        let console = match settings::console(&params).map_err(by_setting)? {
            Some(settings) => Some(Console::start(settings, server.door(), self.number)?),
            None => None,
        };
        status.state = State::Open;
        status.scn = engine.scn().0;
        status.write(dir)?;
        self.announce(&status, started);
        if args.background {
            leave_terminal()?;
        }

        wait_for_stop(&asked.told, &mut status, &engine, &params, dir)?;

        self.tell(Event::Stopping);
        status.state = State::Stopping;
        status.write(dir)?;
        autoanalyze.stop();
        snapshots.stop();
        let console_ended = console.is_none_or(Console::stop);
        if !server.stop() || !console_ended {
            self.tell(Event::SessionsLeft);
        }
        engine.stop(&Progress::of_instance(self.number, Arc::default()))?;
        status.state = State::Stopped;
        status.scn = engine.scn().0;
        status.write(dir)?;
        self.tell(Event::Stopped);
        Ok(())
    }

    /// Creates a database, in a directory that may exist already.
    fn create(
        &self,
        config: &engine::Config,
        progress: &Progress,
        limits: log::Limits,
    ) -> Result<(), Failure> {
        let dir = &self.data;
        let data = dir.display().to_string();
        self.tell(Event::Creating { data });
        advice::create_directory(dir)?;
        self.open_log_file(limits)?;
        Engine::create(config, progress).map_err(|e| advice::of_engine(e, dir))?;
        settings::write_template(dir)
            .map_err(|e| Failure(format!("cannot write the parameter file: {e}")))
    }

    fn status(&self, engine: &Engine, address: SocketAddr) -> Result<Status, Failure> {
        let mut status = Status::of_this_process(self.number, address)?;
        status.recovered = engine.recovery().map(|r| Recovered {
            redo_bytes: r.redo_bytes,
            records: r.records,
            blocks: r.blocks,
            transactions_rolled_back: r.transactions,
            elapsed_ms: r.elapsed_ms,
        });
        status.incarnation = engine.incarnation();
        status.epoch = engine.epoch();
        Ok(status)
    }

    fn announce(&self, status: &Status, started: Instant) {
        if let Some(recovered) = status.recovered.clone() {
            self.tell(Event::Recovered(recovered));
        }
        self.tell(Event::Open {
            address: status.address,
            scn: status.scn,
            elapsed_ms: started.elapsed().as_millis() as u64,
        });
        if !self.has_parent {
            say_how_to_stop(Origin::Instance(self.number), &self.data, true);
        }
    }
}

/// Prints the last line of a start that the person at the terminal reads.
pub fn say_how_to_stop(what: Origin, data: &Path, is_attached: bool) {
    let name = match what {
        Origin::Instance(k) => format!("braid: instance {k}: stop with  "),
        Origin::Guard => "braid: stop all with  ".to_string(),
    };
    let key = if is_attached { "Ctrl-C or " } else { "" };
    say!("{name}{key}braid down --data {}", data.display());
}

/// A signal that asks for a clean stop, for those who have to notice it.
struct Asked {
    /// Read by a start, which waits for other instances and not for a signal.
    is_asked: Arc<AtomicBool>,
    /// Received by the main thread of an open instance, which waits for the signal.
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
                    // The main thread's end of the channel is gone only when the process is.
                    let _ = sender.send(());
                }
            })?;
        Ok(Asked { is_asked, told })
    }
}

/// Has this process stop cleanly when its parent ends. So the instance of a `braid up` that was
/// killed does not stay behind, nor does the `braid up` of a demo. `parent` is the process whose
/// end is meant.
pub fn end_with_parent(parent: u32) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before the call.
    let alive = rustix::process::getppid() == Pid::from_raw(parent as i32);
    if alive {
        Ok(())
    } else {
        Err(Failure(
            "the process that started this one has ended".into(),
        ))
    }
}

/// Keeps the system from writing this process's memory to a core file if it dies: what clients have
/// sent is in it, their passwords among that.
fn forbid_core_files() {
    // One byte is too little for a file, and the one size that also keeps Linux from handing the
    // core to a program.
    let maximum = rustix::process::getrlimit(Resource::Core).maximum;
    let nothing = Rlimit {
        current: Some(maximum.map_or(1, |most| most.min(1))),
        maximum,
    };
    if let Err(e) = rustix::process::setrlimit(Resource::Core, nothing) {
        tracing::warn!("core files cannot be forbidden: {e}");
    }
}

/// Raises the limit of open files as far as it is allowed: each client and each file needs a
/// descriptor.
fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(e) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            "the limit of open files stays at {:?}: {e}; each client and each file needs one",
            limit.current
        );
    }
}

/// A number with its noun in singular or plural.
pub fn counted(n: u64, what: &str) -> String {
    counted_as(n, what, &format!("{what}s"))
}

/// A number with its noun, whose plural is given.
pub fn counted_as(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Gives up the terminal. This process has a session of its own, and its output is the log file.
/// The pipe to `up` closes, and that ends its wait.
pub fn leave_terminal() -> Result<(), Failure> {
    // This fails only for the leader of a process group. A child of `up` is none.
    rustix::process::setsid()?;
    outlet::leave(log::has_stderr())?;
    Ok(())
}

/// Waits for a signal, keeps the SCN in the status file up to date, and follows parameters that are
/// changed.
fn wait_for_stop(
    asked: &Receiver<()>,
    status: &mut Status,
    engine: &Engine,
    params: &sql::params::Instance,
    dir: &Path,
) -> Result<(), Failure> {
    loop {
        match asked.recv_timeout(STATUS_INTERVAL) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                settings::follow(params);
                let now = (engine.scn().0, engine.epoch());
                if now != (status.scn, status.epoch) {
                    (status.scn, status.epoch) = now;
                    // A full disk must not stop an instance. The file is brought up to date later.
                    if let Err(Failure(why)) = status.write(dir) {
                        tracing::warn!("{why}; braid status shows what the file had before");
                    }
                }
            }
        }
    }
}
