//! `braid demo`: shows on throw-away data, within a minute, what two instances of one database do.
//!
//! Each step prints what it does, the statements, their results, and what to notice. A step checks
//! each claim before it prints it, on what it has read (`claims`). The first claim that does not
//! hold ends the demo with exit code 1 and leaves the data where it is.
//!
//! | module | holds |
//! |---|---|
//! | [`share`] | two instances are started; one writes, the other reads |
//! | [`waits`] | a session waits for a block and a row of the other instance; who made it wait |
//! | [`sequences`] | both instances draw values |
//! | [`crash`], [`load`] | an instance is killed under load; no acknowledged commit is missing |
//! | [`cluster`], [`session`], [`stage`] | processes and data; connections; what is printed |

mod claims;
pub mod cluster;
mod crash;
mod load;
mod sequences;
pub mod session;
mod share;
mod stage;
mod waits;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;
use crate::cli::DemoArgs;
use crate::report::Origin;
use claims::Claims;
use cluster::Cluster;
use session::{Answer, Session};
use stage::Stage;

/// Exit code of a demo that was interrupted: that of shells for SIGINT.
const INTERRUPTED: i32 = 130;

/// The common state of all steps: where they print, what they count, and the instances.
struct Demo {
    stage: Stage,
    claims: Claims,
    cluster: Arc<Cluster>,
}

impl Demo {
    /// Shows a statement, runs it, and shows its result.
    fn show(&self, session: &mut Session, sql: &str) -> Result<Answer, Failure> {
        self.stage.typed(&session.prompt, &format!("{sql};"));
        let answer = session.ask(sql)?;
        self.stage.answer(&answer);
        Ok(answer)
    }

    /// Shows a statement and runs it. Its only result is that it was done.
    fn do_it(&self, session: &mut Session, sql: &str) -> Result<(), Failure> {
        self.stage.typed(&session.prompt, &format!("{sql};"));
        session.ask(sql).map(drop)
    }
}

pub fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let cluster = Arc::new(Cluster::prepare(args)?);
    end_on_signals(cluster.clone())?;
    let mut demo = Demo {
        stage: Stage::new(args.pause),
        claims: Claims::default(),
        cluster: cluster.clone(),
    };
    if let Err(Failure(why)) = tell(&mut demo) {
        return Err(failed(&cluster, demo.stage.at(), &why));
    }
    cluster.remove()?;
    say!();
    say!(
        "All {} claims were checked, and held. It took {:.0} s. {} is removed.",
        demo.claims.held,
        began.elapsed().as_secs_f64(),
        cluster.dir().display()
    );
    say!("Your own database: braid up --instances 2   (braid --help has the rest)");
    Ok(ExitCode::SUCCESS)
}

/// Runs the steps in their order.
fn tell(demo: &mut Demo) -> Result<(), Failure> {
    demo.stage.title(
        "Braid: one database, two servers that read and write all of it",
        &format!(
            "Everything below happens now, on this machine, in {}. The demo checks what it says \
             against what it reads, and ends with exit code 1 if anything is not so.",
            demo.cluster.dir().display()
        ),
    );
    share::start(demo)?;
    share::write_and_read(demo)?;
    waits::for_a_block(demo)?;
    waits::for_a_row(demo)?;
    sequences::draw(demo)?;
    let outcome = crash::kill_under_load(demo)?;
    crash::look_for_every_commit(demo, &outcome)?;
    share::stop_and_verify(demo)
}

/// Stops the instances, and says what did not hold and where the data is.
fn failed(cluster: &Cluster, step: u32, why: &str) -> Failure {
    let stopped = match cluster.end(true) {
        Ok(()) => String::new(),
        Err(Failure(e)) => format!("\nbraid demo: and the instances could not be stopped: {e}"),
    };
    Failure(format!(
        "demo: step {step} failed: {why}{stopped}\n\
         braid: demo: the data is kept in {}; the instances' messages are in {}",
        cluster.dir().display(),
        crate::log::path(cluster.dir(), Origin::Guard).display()
    ))
}

/// Ends the demo as Ctrl-C does.
fn interrupt() -> ! {
    // A process may always signal itself. The thread that hears the signals ends this process.
    if let Err(e) = signal_hook::low_level::raise(SIGINT) {
        complain!("braid: demo: {e}");
    }
    cluster::wait_for_exit()
}

/// Has Ctrl-C and the like stop the instances, remove the data and end the process.
fn end_on_signals(cluster: Arc<Cluster>) -> Result<(), Failure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_none() {
                return;
            }
            complain!("\nbraid: demo: interrupted; the instances are stopped, the data is removed");
            if let Err(Failure(why)) = cluster.end(false) {
                complain!("braid: demo: {why}");
            }
            std::process::exit(INTERRUPTED);
        })?;
    Ok(())
}
